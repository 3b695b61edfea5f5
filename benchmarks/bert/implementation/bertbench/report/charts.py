"""Draw charts as SVG text for `bertbench.report.page`: lines, scatter, bars.

Each function returns one `<figure>`: caption, drawing, legend. Colours are the page's CSS variables --series-0 to
--series-7, so that a chart follows the page's light or dark mode; from the ninth series on they repeat, dashed. Marks
carry a `<title>`, which browsers show on hover. All text is escaped, because it may come from a log.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bertbench.report.markup import cell, escape

# Drawn in units of 420 x 250, which a phone shows at 0.79: text of 13 units stays above 10 pixels.
_WIDTH, _HEIGHT = 420.0, 250.0
_RIGHT, _TOP, _BOTTOM = 24.0, 10.0, 44.0
_AXIS_LABEL = 26.0  # left of the tick labels, for the axis' own vertical label
_ROW, _ROW_TOP = 34.0, 4.0  # height of a bar with its label, and the first one's place
_CHARACTER = 7.6  # width of a digit at 13 units, slightly above that of common fonts
_COLOURS = 8
_TICKS = 5  # about as many on an axis
_MOST_POWERS = 6
_LARGEST = 1e15  # larger and non-finite values are left out: logs may hold anything
_MOST_MARKERS = 60  # a line with more points is drawn without markers


@dataclass(frozen=True)
class Series:
    """Points (x, y) under one name."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """An axis' quantity and unit; `low` and `high` widen it beyond the data, never narrow it.

    With `base` it is logarithmic, with powers of the base as ticks; values that aren't positive are then left out.
    """

    label: str
    low: float | None = None
    high: float | None = None
    base: Literal[2, 10] | None = None

    def shows(self, value: float) -> bool:
        """Return whether a value can be drawn: not for NaN, which is below no number."""
        return abs(value) < _LARGEST and (self.base is None or value > 0)


@dataclass(frozen=True)
class Bar:
    """One row of stacked `parts` by name. `note` is written at its end; `strong` highlights it."""

    label: str
    parts: dict[str, float]
    note: str = ""
    strong: bool = False


def lines(
    title: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    levels: Sequence[tuple[str, float]] = (),
    joined: bool = True,
) -> str:
    """Draw lines through points; `levels` are named horizontal dashed lines, such as a target."""
    drawable = [(one.name, [(at, to) for at, to in one.points if x.shows(at) and y.shows(to)]) for one in series]
    points = [point for _, kept in drawable for point in kept]
    if not points:
        return _nothing(title)
    up = _Scale([*(to for _, to in points), *(level for _, level in levels)], y, _HEIGHT - _BOTTOM, _TOP)
    across = _Scale([at for at, _ in points], x, up.left, _WIDTH - _RIGHT)
    drawn = [*across.verticals(_TOP, _HEIGHT - _BOTTOM), *up.horizontals()]
    for name, level in levels:
        height = up.at(level)
        drawn.append(_horizontal(up.left, height, "level"))
        drawn.append(_text(up.left + 4, height - 4 if height > _TOP + 16 else height + 14, name, "strong"))
    for index, (name, kept) in enumerate(drawable):
        hue = index % _COLOURS
        places = [(_n(across.at(at)), _n(up.at(to))) for at, to in kept]
        if joined and len(kept) > 1:
            path = "L".join(map(" ".join, places))
            dashed = ' stroke-dasharray="5 3"' if index >= _COLOURS else ""
            drawn.append(f'<path d="M{path}" class="line-{hue}"{dashed}>{_title(name)}</path>')
        if joined and len(kept) > _MOST_MARKERS:
            continue
        for (place_x, place_y), (at, to) in zip(places, kept, strict=True):
            drawn.append(
                f'<circle cx="{place_x}" cy="{place_y}" r="{2 if joined else 3.5}" class="fill-{hue}">'
                f"{_title(f'{name}: ({number(at)}, {number(to)})')}</circle>"
            )
    return _figure(title, drawn, [one.name for one in series], _HEIGHT)


scatter = partial(lines, joined=False)
"""Draw points without lines."""


def bars(title: str, rows: Sequence[Bar], x: Axis) -> str:
    """Draw rows from zero to the right, in the order given, with a legend of parts; a negative part has no length."""
    if not rows:
        return _nothing(title)
    lengths = [{name: value for name, value in row.parts.items() if x.shows(value) and value > 0} for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row.parts))
    note_room = _CHARACTER * max(len(row.note) for row in rows)
    scale = _Scale([0.0, *(sum(parts.values()) for parts in lengths)], x, 6.0, _WIDTH - max(_RIGHT, note_room + 8))
    bottom = _ROW_TOP + _ROW * len(rows)
    drawn = scale.verticals(_ROW_TOP, bottom)
    for index, (row, parts) in enumerate(zip(rows, lengths, strict=True)):
        y, left = _ROW_TOP + index * _ROW, scale.at(0.0)
        drawn.append(_text(6, y + 12, cell(row.label), "strong" * row.strong))
        for name, value in parts.items():
            width = scale.at(value) - scale.at(0.0)
            drawn.append(
                f'<rect x="{_n(left)}" y="{_n(y + 17)}" width="{_n(width)}" height="11" '
                f'class="fill-{names.index(name) % _COLOURS}">{_title(f"{row.label}: {name} {number(value)}")}</rect>'
            )
            left += width
        drawn.append(_text(left + 4, y + 26, row.note, "strong" * row.strong))
    return _figure(title, drawn, [name if any(name in parts for parts in lengths) else "" for name in names],
                   bottom + _BOTTOM)  # fmt: skip


def number(value: float) -> str:
    """Format a number for an axis: 12.8k, 1.5M, 0.72."""
    for factor, least, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e3, 1e4, "k")):
        if abs(value) >= least:
            return f"{value / factor:.4g}{suffix}"
    return f"{value:,.4g}" if abs(value) < 1e3 else f"{value:,.0f}"


def ticks(low: float, high: float) -> list[float]:
    """Return about five round values that cover `low` to `high`, in steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [index * step for index in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def powers(low: float, high: float, base: int) -> list[float]:
    """Return evenly spaced powers of `base`, at most six, that cover `low` to `high`."""
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    stride = max(1, math.ceil((last - first) / (_MOST_POWERS - 1)))
    steps = max(1, math.ceil((last - first) / stride))
    return [float(base) ** (first + stride * step) for step in range(steps + 1)]


class _Scale:
    """Map an axis' values to places on the drawing, over a range that ends on ticks."""

    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float) -> None:
        bounds = [*values, *(bound for bound in (axis.low, axis.high) if bound is not None)]
        low, high = min(bounds), max(bounds)
        if not axis.base and high - low <= 1e-9 * max(abs(low), abs(high)):
            low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
        self._axis, self._start, self._end = axis, start, end
        ends = powers(low, high, axis.base) if axis.base else ticks(low, high)
        # powers of two in full, because 16.38k isn't one
        self._labels = [(tick, f"{tick:,.0f}" if axis.base == 2 and 1 <= tick < 1e6 else number(tick)) for tick in ends]

    def at(self, value: float) -> float:
        (low, _), *_, (high, _) = self._labels
        value, low, high = (math.log(place) if self._axis.base else place for place in (value, low, high))
        return self._start + (value - low) / (high - low) * (self._end - self._start)

    @property
    def left(self) -> float:
        """Return where a drawing begins, right of this scale's axis label and tick labels."""
        return _AXIS_LABEL + _CHARACTER * max(len(label) for _, label in self._labels)

    def verticals(self, top: float, bottom: float) -> list[str]:
        """Draw this scale along the bottom."""
        drawn = [_text((self._start + self._end) / 2, bottom + 34, self._axis.label, "middle")]
        for tick, label in self._labels:
            place = self.at(tick)
            drawn.append(f'<path d="M{_n(place)} {_n(top)}V{_n(bottom)}" class="grid"/>')
            drawn.append(_text(place, bottom + 15, label, "middle"))
        return drawn

    def horizontals(self) -> list[str]:
        """Draw this scale along the left side."""
        middle, label = _n((self._start + self._end) / 2), escape(self._axis.label)
        drawn = [f'<text class="middle" transform="translate(12 {middle}) rotate(-90)">{label}</text>']
        for tick, text in self._labels:
            height = self.at(tick)
            drawn += [_horizontal(self.left, height, "grid"), _text(self.left - 5, height + 4, text, "end")]
        return drawn


def _horizontal(left: float, height: float, kind: str) -> str:
    return f'<path d="M{_n(left)} {_n(height)}H{_n(_WIDTH - _RIGHT)}" class="{kind}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}">{escape(text)}</text>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _figure(title: str, drawn: Sequence[str], names: Sequence[str], height: float) -> str:
    legend = ""
    if len(names) > 1:
        entries = (  # an empty part keeps its colour but has no entry
            f'<li><i class="swatch-{index % _COLOURS}{" again" if index >= _COLOURS else ""}"></i>{escape(name)}</li>'
            for index, name in enumerate(names)
            if name
        )
        legend = f"<ul>{''.join(entries)}</ul>"
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_n(_WIDTH)} {_n(height)}" role="img" aria-label="{escape(title)}">'
        f"{''.join(drawn)}</svg>{legend}</figure>\n"
    )


def _nothing(title: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption><p>nothing to draw</p></figure>\n"


def _n(value: float) -> str:
    """Format a coordinate with one decimal: less than a pixel."""
    return f"{value:.1f}".removesuffix(".0")
