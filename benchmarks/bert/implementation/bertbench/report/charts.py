"""Draw charts as SVG text for `bertbench.report.page`: lines and scatter.

Each function returns one `<figure>`: caption, drawing, legend. Colours are the page's CSS variables --series-0 to
--series-9, so that a chart follows the page's light or dark mode; from the eleventh series on they repeat with dashes
and rings. A line carries a `<title>`, which browsers show on hover. All text is escaped, because it may come from a
log.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bertbench.common.markup import escape

# Drawn in units of 420 x 250, which a phone shows at 0.79: text of 13 units stays above 10 pixels.
_WIDTH, _HEIGHT = 420.0, 250.0
_RIGHT, _TOP, _BOTTOM = 24.0, 26.0, 44.0
_LABEL_HEIGHT = 12.0  # of the vertical axis' label, which stands above the axis: there it has the whole width
_CHARACTER = 7.6  # width of a digit at 13 units, slightly above that of common fonts
_LONGEST_LABEL = int(_WIDTH / _CHARACTER)  # characters
_COLOURS = 10  # the runs of a result
_PATTERNS = 3  # whole, dashed, dotted
_TICKS = 5  # about as many on an axis
_LARGEST = 1e15  # larger and non-finite values are left out: logs may hold anything
_MOST_MARKERS = 60  # a line with more points is drawn without markers


Series = Mapping[str, Sequence[tuple[float, float]]]
"""Points (x, y) by name."""


@dataclass(frozen=True)
class Axis:
    """An axis' quantity and unit; `low` and `high` widen it beyond the data, never narrow it.

    With `log2` it is logarithmic, with powers of two as ticks; values that aren't positive are then left out.
    """

    label: str
    low: float | None = None
    high: float | None = None
    log2: bool = False

    def shows(self, value: float) -> bool:
        """Return whether a value can be drawn: not for NaN, which is below no number."""
        return abs(value) < _LARGEST and (value > 0 or not self.log2)


def lines(
    title: str,
    series: Series,
    x: Axis,
    y: Axis,
    level: tuple[str, float] | None = None,
    joined: bool = True,
) -> str:
    """Draw lines through points; `level` is a named horizontal dashed line, such as a target."""
    drawable = {name: [(at, to) for at, to in points if x.shows(at) and y.shows(to)] for name, points in series.items()}
    points = [point for kept in drawable.values() for point in kept]
    if not points:
        return f"<figure><figcaption>{escape(title)}</figcaption><p>nothing to draw</p></figure>\n"
    up = _Scale([*(to for _, to in points), *(level[1:] if level else ())], y, _HEIGHT - _BOTTOM, _TOP)
    across = _Scale([at for at, _ in points], x, up.left, _WIDTH - _RIGHT)
    drawn = [*across.verticals(), *up.horizontals()]
    if level:
        name, value = level
        height = up.at(value)
        drawn.append(_horizontal(up.left, height, "level"))
        drawn.append(_text(up.left + 4, height - 4 if height > _TOP + 16 else height + 14, name, "strong"))
    for index, (name, kept) in enumerate(drawable.items()):
        hue, pattern = _look(index)
        places = [(_n(across.at(at)), _n(up.at(to))) for at, to in kept]
        if joined and len(kept) > 1:
            path = "L".join(map(" ".join, places))
            drawn.append(f'<path d="M{path}" class="line-{hue} {pattern}"><title>{escape(name)}</title></path>')
        if joined and len(kept) > _MOST_MARKERS:
            continue
        radius = 2 if joined else 3.5
        drawn += [f'<circle cx="{at}" cy="{to}" r="{radius}" class="fill-{hue} {pattern}"/>' for at, to in places]
    return _figure(title, drawn, list(series))


scatter = partial(lines, joined=False)
"""Draw points without lines."""


def number(value: float) -> str:
    """Format a number for an axis: 12.8k, 1.5M, 0.72."""
    for factor, least, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e3, 1e4, "k")):
        if abs(value) >= least:
            return f"{value / factor:.4g}{suffix}"
    return f"{value:,.4g}" if abs(value) < 1e3 else f"{value:,.0f}"


def ticks(low: float, high: float, least_step: float = 0.0) -> list[float]:
    """Return about five round values that cover `low` to `high`, in steps of 1, 2 or 5 times a power of ten."""
    rough = max((high - low) / _TICKS, least_step)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [index * step for index in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


class _Scale:
    """Map an axis' values to places on the drawing, over a range that ends on ticks."""

    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float) -> None:
        bounds = [*values, *(bound for bound in (axis.low, axis.high) if bound is not None)]
        self._linear = math.log2 if axis.log2 else float
        low, high = self._linear(min(bounds)), self._linear(max(bounds))
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
        self._axis, self._start, self._end = axis, start, end
        if axis.log2:  # in full, because 16.38k is no power of two
            self._labels = [(2.0**power, f"{2.0**power:,.6g}") for power in ticks(low, high, least_step=1.0)]
        else:
            self._labels = [(tick, number(tick)) for tick in ticks(low, high)]

    def at(self, value: float) -> float:
        low, value, high = map(self._linear, (self._labels[0][0], value, self._labels[-1][0]))
        return self._start + (value - low) / (high - low) * (self._end - self._start)

    @property
    def left(self) -> float:
        """Return where a drawing begins, right of this scale's tick labels."""
        return _CHARACTER + _CHARACTER * max(len(label) for _, label in self._labels)

    def verticals(self) -> list[str]:
        """Draw this scale along the bottom."""
        bottom = _HEIGHT - _BOTTOM
        drawn = [_text(_WIDTH - _RIGHT, bottom + 34, _cut(self._axis.label), "end")]
        for tick, label in self._labels:
            place = self.at(tick)
            drawn.append(f'<path d="M{_n(place)} {_n(_TOP)}V{_n(bottom)}" class="grid"/>')
            drawn.append(_text(place, bottom + 15, label, "middle"))
        return drawn

    def horizontals(self) -> list[str]:
        """Draw this scale along the left side."""
        drawn = [_text(2, _LABEL_HEIGHT, _cut(self._axis.label), "start")]
        for tick, text in self._labels:
            height = self.at(tick)
            drawn += [_horizontal(self.left, height, "grid"), _text(self.left - 5, height + 4, text, "end")]
        return drawn


def _look(index: int) -> tuple[int, str]:
    """Return the colour and the class of the pattern of a series: from the eleventh on, colours come again."""
    return index % _COLOURS, f"pattern-{index // _COLOURS % _PATTERNS}"


def _cut(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 3]}..."


def _horizontal(left: float, height: float, kind: str) -> str:
    return f'<path d="M{_n(left)} {_n(height)}H{_n(_WIDTH - _RIGHT)}" class="{kind}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}">{escape(text)}</text>'


def _figure(title: str, drawn: Sequence[str], names: Sequence[str]) -> str:
    legend = ""
    if len(names) > 1:
        looks = (_look(index) for index in range(len(names)))
        entries = (
            f'<li><i class="swatch-{hue} {pattern}"></i>{escape(name)}</li>'
            for (hue, pattern), name in zip(looks, names, strict=True)
        )
        legend = f"<ul>{''.join(entries)}</ul>"
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_n(_WIDTH)} {_n(_HEIGHT)}" role="img" aria-label="{escape(title)}">'
        f"{''.join(drawn)}</svg>{legend}</figure>\n"
    )


def _n(value: float) -> str:
    """Format a coordinate with one decimal: less than a pixel."""
    return f"{value:.1f}".removesuffix(".0")
