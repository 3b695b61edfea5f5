"""Draw charts as SVG text for `bertbench.report.page`: lines, scatter, bars.

Each function returns one `<figure>`: caption, drawing, legend. Colours are the page's CSS variables --series-0 to
--series-7, so that a chart follows the page's light or dark mode; from the ninth series on they repeat, dashed. Marks
carry a `<title>`, which browsers show on hover. All text is escaped, because it may come from a log.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bertbench.report.markup import escape

# Drawn in units of 420 x 250, which a phone shows at 0.79: text of 13 units stays above 10 pixels.
_WIDTH, _HEIGHT = 420.0, 250.0
_RIGHT, _TOP, _BOTTOM = 24.0, 10.0, 44.0
_AXIS_LABEL = 26.0  # left of the tick labels, for the axis' own vertical label
_ROW, _ROW_TOP = 34.0, 4.0  # height of a bar with its label, and the first one's place
_BAR_LABEL_CHARACTERS = 44
_CHARACTER = 7.6  # width of a digit at 13 units, slightly above that of common fonts
_COLOURS = 8
_LARGEST = 1e15  # larger and non-finite values are left out: logs may hold anything
_NEAR = 1 + 1e-9  # tolerance, so that rounding moves no value over a tick
_MOST_MARKERS = 60  # a line with more points is drawn without markers


@dataclass(frozen=True)
class Series:
    """Points (x, y) under one name; `titles` are their texts on hover, one a point."""

    name: str
    points: Sequence[tuple[float, float]]
    titles: Sequence[str] = ()


@dataclass(frozen=True)
class Axis:
    """An axis' quantity and unit; `low` and `high` widen it beyond the data, never narrow it.

    With `base` it is logarithmic, with powers of the base as ticks; values that aren't positive are then left out.
    """

    label: str
    low: float | None = None
    high: float | None = None
    base: Literal[2, 10] | None = None


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
    drawable = [[(px, py) for px, py in one.points if _drawable(px, x) and _drawable(py, y)] for one in series]
    points = [point for one in drawable for point in one]
    if not points:
        return _nothing(title)
    up = _Scale([*(point[1] for point in points), *(level for _, level in levels)], y, _HEIGHT - _BOTTOM, _TOP)
    across = _Scale([point[0] for point in points], x, up.left, _WIDTH - _RIGHT)
    drawn = _grid(across, up, x, y)
    for name, level in levels:
        height = up.at(level)
        drawn.append(_horizontal(up.left, height, "level"))
        drawn.append(_text(up.left + 4, height - 4 if height > _TOP + 16 else height + 14, name, "strong"))
    for index, (one, kept) in enumerate(zip(series, drawable, strict=True)):
        hue = index % _COLOURS
        if joined and len(kept) > 1:
            path = "L".join(f"{_n(across.at(px))} {_n(up.at(py))}" for px, py in kept)
            dashed = ' stroke-dasharray="5 3"' if index >= _COLOURS else ""
            drawn.append(f'<path d="M{path}" class="line-{hue}"{dashed}>{_title(one.name)}</path>')
        if joined and len(kept) > _MOST_MARKERS:
            continue
        titles = one.titles if len(one.titles) == len(kept) else [f"({number(px)}, {number(py)})" for px, py in kept]
        drawn += [
            f'<circle cx="{_n(across.at(px))}" cy="{_n(up.at(py))}" r="{2 if joined else 3.5}" class="fill-{hue}">'
            f"{_title(f'{one.name}: {text}')}</circle>"
            for (px, py), text in zip(kept, titles, strict=True)
        ]
    return _figure(title, drawn, [one.name for one in series], _HEIGHT)


def scatter(title: str, series: Sequence[Series], x: Axis, y: Axis, levels: Sequence[tuple[str, float]] = ()) -> str:
    """Draw points without lines."""
    return lines(title, series, x, y, levels, joined=False)


def bars(title: str, rows: Sequence[Bar], x: Axis) -> str:
    """Draw rows from zero to the right, in the order given, with a legend of parts; a negative part has no length."""
    if not rows:
        return _nothing(title)
    rows = [replace(row, parts={name: _length(value) for name, value in row.parts.items()}) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row.parts))
    note_room = _CHARACTER * max(len(row.note) for row in rows)
    scale = _Scale([0.0, *(sum(row.parts.values()) for row in rows)], x, 6.0, _WIDTH - max(_RIGHT, note_room + 8))
    bottom = _ROW_TOP + _ROW * len(rows)
    drawn = _verticals(scale, x, _ROW_TOP, bottom)
    for index, row in enumerate(rows):
        y, left = _ROW_TOP + index * _ROW, scale.at(0.0)
        drawn.append(_text(6, y + 12, _cut(row.label), "strong" * row.strong))
        for name, value in row.parts.items():
            if value:
                width, hue = scale.at(value) - scale.at(0.0), names.index(name) % _COLOURS
                drawn.append(
                    f'<rect x="{_n(left)}" y="{_n(y + 17)}" width="{_n(width)}" height="11" class="fill-{hue}">'
                    f"{_title(f'{row.label}: {name} {number(value)}')}</rect>"
                )
                left += width
        drawn.append(_text(left + 4, y + 26, row.note, "strong" * row.strong))
    used = {name for row in rows for name, value in row.parts.items() if value}
    return _figure(title, drawn, [name if name in used else "" for name in names], bottom + _BOTTOM)


def number(value: float) -> str:
    """Format a number for an axis: 12.8k, 1.5M, 0.72."""
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (factor if factor > 1e3 else 1e4):
            return f"{value / factor:.4g}{suffix}"
    return f"{value:,.4g}" if abs(value) < 1e3 else f"{value:,.0f}"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about `about` round values from `low` to `high`, in steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def powers(low: float, high: float, base: int, most: int = 6) -> list[float]:
    """Return evenly spaced powers of `base`, at most `most`, that cover `low` to `high`.

    If powers of ten are too far apart for the range, add 2 and 5 times them.
    """
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    if base == 10 and last - first <= 2:
        fine = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
        below = max(tick for tick in fine if tick <= low * _NEAR)
        above = min(tick for tick in [*fine, 10.0 ** (last + 1)] if tick * _NEAR >= high and tick > below)
        return [tick for tick in fine if below <= tick <= above]
    stride = max(1, math.ceil((last - first) / (most - 1)))
    steps = max(1, math.ceil((last - first) / stride))
    return [float(base) ** (first + stride * step) for step in range(steps + 1)]


class _Scale:
    """Map values to places on the drawing, over a range that ends on ticks."""

    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float) -> None:
        bounds = [*values, *(bound for bound in (axis.low, axis.high) if bound is not None)]
        low, high = min(bounds), max(bounds)
        self._start, self._end, self._base = start, end, axis.base
        if axis.base:
            self.ticks = powers(low, high, axis.base)
            self.low, self.high = self.ticks[0], self.ticks[-1]
            return
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
        inner = ticks(low, high)
        step = inner[1] - inner[0] if len(inner) > 1 else high - low
        # extend to the next tick only if the data come near it, to leave little empty room
        self.low = math.floor(low / step + 1e-9) * step
        self.high = math.ceil(high / step - 1e-9) * step
        self.ticks = ticks(self.low, self.high)

    def at(self, value: float) -> float:
        value, low, high = (math.log(place) if self._base else place for place in (value, self.low, self.high))
        return self._start + (value - low) / (high - low) * (self._end - self._start)

    def labels(self) -> list[str]:
        """Return the texts of the ticks; powers of two in full, because 16.38k isn't one."""
        return [f"{tick:,.0f}" if self._base == 2 and 1 <= tick < 1e6 else number(tick) for tick in self.ticks]

    @property
    def left(self) -> float:
        """Return where a drawing begins, right of this scale's axis label and tick labels."""
        return _AXIS_LABEL + _CHARACTER * max(map(len, self.labels()))


def _grid(across: _Scale, up: _Scale, x: Axis, y: Axis) -> list[str]:
    drawn = _verticals(across, x, _TOP, _HEIGHT - _BOTTOM)
    for tick, label in zip(up.ticks, up.labels(), strict=True):
        height = up.at(tick)
        drawn += [_horizontal(up.left, height, "grid"), _text(up.left - 5, height + 4, label, "end")]
    middle = _n((_TOP + _HEIGHT - _BOTTOM) / 2)
    drawn.append(f'<text class="middle" transform="translate(12 {middle}) rotate(-90)">{escape(y.label)}</text>')
    return drawn


def _verticals(scale: _Scale, axis: Axis, top: float, bottom: float) -> list[str]:
    drawn = []
    for tick, label in zip(scale.ticks, scale.labels(), strict=True):
        place = scale.at(tick)
        drawn.append(f'<path d="M{_n(place)} {_n(top)}V{_n(bottom)}" class="grid"/>')
        drawn.append(_text(place, bottom + 15, label, "middle"))
    middle = (scale.at(scale.low) + scale.at(scale.high)) / 2
    return [*drawn, _text(middle, bottom + 34, axis.label, "middle")]


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


def _drawable(value: float, axis: Axis | None = None) -> bool:
    return abs(value) < _LARGEST and (axis is None or axis.base is None or value > 0)  # false for NaN


def _length(value: float) -> float:
    return max(value, 0.0) if _drawable(value) else 0.0


def _cut(label: str) -> str:
    return label if len(label) <= _BAR_LABEL_CHARACTERS else label[: _BAR_LABEL_CHARACTERS - 1] + "…"


def _n(value: float) -> str:
    """Format a coordinate with one decimal: less than a pixel."""
    return f"{value:.1f}".removesuffix(".0")
