"""Draw charts as SVG text for `bertbench.report.page`: lines and scatter.

Each function returns one `<figure>` with caption, drawing and legend. Colours are the page's CSS variables --series-0
to --series-9, so that a chart follows the page's light or dark mode. From the eleventh series on, colours repeat with
dashes and rings. A line has a `<title>`, which browsers show on hover. All text is escaped, because it may come from a
log.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from bertbench.common.markup import escape

# The drawing has 420 x 250 units. A phone shows it at a scale of 0.79, so that text of 13 units is larger than 10
# pixels.
_WIDTH = 420.0
_HEIGHT = 250.0
_RIGHT = 24.0  # margins; the left one depends on the labels
_TOP = 26.0
_BOTTOM = 44.0
_LABEL_HEIGHT = 12.0  # of the vertical axis's label, which is above the axis because it has the whole width there
_CHARACTER = 7.6  # width of a digit at 13 units, slightly above that of common fonts
_LONGEST_LABEL = int(_WIDTH / _CHARACTER)  # characters
_COLOURS = 10  # as many as a result has runs
_PATTERNS = 3  # solid, dashed, dotted
_TICKS = 5  # the approximate number of ticks on an axis
_LARGEST = 1e15  # larger and non-finite values are left out, because logs may contain anything
_MOST_MARKERS = 60  # a line with more points is drawn without markers


Series = Mapping[str, Sequence[tuple[float, float]]]
"""The points (x, y) of each series, by name."""


@dataclass(frozen=True)
class Axis:
    """The quantity and unit of an axis; `low` and `high` may extend it beyond the data, but never shorten it.

    With `log2`, the axis is logarithmic and its ticks are powers of two; values that aren't positive are left out.
    """

    label: str
    low: float | None = None
    high: float | None = None
    log2: bool = False

    def shows(self, value: float) -> bool:
        """Return whether a value can be drawn; NaN can't, because no comparison with it is true."""
        return abs(value) < _LARGEST and (value > 0 or not self.log2)


def lines(
    title: str,
    series: Series,
    x: Axis,
    y: Axis,
    level: tuple[str, float] | None = None,
    points_only: Collection[str] = (),
) -> str:
    """Draw lines through points; the points of the series in `points_only` aren't connected.

    `level` is a horizontal dashed line with a name, such as a target.
    """
    drawable = {name: _drawable(points, x, y) for name, points in series.items()}
    drawn_points = list(chain.from_iterable(drawable.values()))
    if not drawn_points:
        return f"<figure><figcaption>{escape(title)}</figcaption><p>nothing to draw</p></figure>\n"
    heights = [point_y for _, point_y in drawn_points]
    if level:
        heights.append(level[1])
    vertical = _Scale(heights, y, _HEIGHT - _BOTTOM, _TOP)
    horizontal = _Scale([point_x for point_x, _ in drawn_points], x, vertical.left, _WIDTH - _RIGHT)
    shapes = [*horizontal.verticals(), *vertical.horizontals()]
    if level:
        name, value = level
        shapes += _level(name, vertical.left, vertical.at(value))
    for index, (name, points) in enumerate(drawable.items()):
        places = [(_n(horizontal.at(point_x)), _n(vertical.at(point_y))) for point_x, point_y in points]
        shapes += _series(name, places, _look(index), name not in points_only)
    return _figure(title, shapes, list(series))


def _drawable(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> list[tuple[float, float]]:
    return [point for point in points if x.shows(point[0]) and y.shows(point[1])]


def _level(name: str, left: float, height: float) -> list[str]:
    """Draw a horizontal line with a name, which stands clear above it, or below it if the line is near the top."""
    baseline = height - 10 if height > _TOP + 22 else height + 14
    return [_horizontal(left, height, "level"), _text(left + 4, baseline, name, "strong")]


def _series(name: str, places: Sequence[tuple[str, str]], look: "_Look", joined: bool) -> list[str]:
    """Draw one series: a line if it is `joined`, and a marker for each point unless a line has too many points."""
    line = ""
    if joined and len(places) > 1:
        path = "L".join(f"{x} {y}" for x, y in places)
        line = f'<path d="M{path}" class="line-{look.colour} {look.pattern}"><title>{escape(name)}</title></path>'
    if joined and len(places) > _MOST_MARKERS:
        return [line]
    radius = 2 if joined else 3.5
    kind = f"fill-{look.colour} {look.pattern}"
    return [line, *(f'<circle cx="{x}" cy="{y}" r="{radius}" class="{kind}"/>' for x, y in places)]


def scatter(title: str, series: Series, x: Axis, y: Axis, level: tuple[str, float] | None = None) -> str:
    """Draw points without lines."""
    return lines(title, series, x, y, level, points_only=series.keys())


def axis_number(value: float) -> str:
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
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


class _Scale:
    """Maps the values of an axis to coordinates in the drawing, over a range that ends at ticks."""

    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float) -> None:
        bounds = [*values, *(bound for bound in (axis.low, axis.high) if bound is not None)]
        self._axis = axis
        self._start = start
        self._end = end
        self._linear = math.log2 if axis.log2 else float
        low = self._linear(min(bounds))
        high = self._linear(max(bounds))
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            low, high = _range_around(low, high)
        if axis.log2:  # numbers are written in full, because 16.38k isn't a power of two
            self._labels = [(2.0**power, f"{2.0**power:,.6g}") for power in ticks(low, high, least_step=1.0)]
        else:
            self._labels = [(tick, axis_number(tick)) for tick in ticks(low, high)]
        self._lowest = self._linear(self._labels[0][0])
        self._highest = self._linear(self._labels[-1][0])

    def at(self, value: float) -> float:
        """Return the coordinate of a value in the drawing."""
        share = (self._linear(value) - self._lowest) / (self._highest - self._lowest)
        return self._start + share * (self._end - self._start)

    @property
    def left(self) -> float:
        """Return the coordinate at which the drawing begins, to the right of this scale's tick labels."""
        return _CHARACTER + _CHARACTER * max(len(label) for _, label in self._labels)

    def verticals(self) -> list[str]:
        """Draw this scale along the bottom."""
        bottom = _HEIGHT - _BOTTOM
        shapes = [_text(_WIDTH - _RIGHT, bottom + 34, _cut(self._axis.label), "end")]
        for tick, label in self._labels:
            place = self.at(tick)
            shapes.append(f'<path d="M{_n(place)} {_n(_TOP)}V{_n(bottom)}" class="grid"/>')
            shapes.append(_text(place, bottom + 15, label, "middle"))
        return shapes

    def horizontals(self) -> list[str]:
        """Draw this scale along the left side."""
        shapes = [_text(2, _LABEL_HEIGHT, _cut(self._axis.label), "start")]
        for tick, text in self._labels:
            height = self.at(tick)
            shapes += [_horizontal(self.left, height, "grid"), _text(self.left - 5, height + 4, text, "end")]
        return shapes


@dataclass(frozen=True)
class _Look:
    """How a series is drawn: the number of its colour, and the CSS class of its pattern."""

    colour: int
    pattern: str


def _look(index: int) -> _Look:
    """Return the look of a series; from the eleventh on, colours repeat with another pattern."""
    return _Look(index % _COLOURS, f"pattern-{index // _COLOURS % _PATTERNS}")


def _range_around(low: float, high: float) -> tuple[float, float]:
    """Return a range around nearly equal values, because an axis needs some length."""
    if low == 0.0:
        return 0.0, 1.0
    return low - abs(low) / 2, high + abs(high) / 2


def _cut(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 3]}..."


def _horizontal(left: float, height: float, kind: str) -> str:
    return f'<path d="M{_n(left)} {_n(height)}H{_n(_WIDTH - _RIGHT)}" class="{kind}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}">{escape(text)}</text>'


def _figure(title: str, shapes: Sequence[str], names: Sequence[str]) -> str:
    legend = _legend(names) if len(names) > 1 else ""
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_n(_WIDTH)} {_n(_HEIGHT)}" role="img" aria-label="{escape(title)}">'
        f"{''.join(shapes)}</svg>{legend}</figure>\n"
    )


def _legend(names: Sequence[str]) -> str:
    entries = []
    for index, name in enumerate(names):
        look = _look(index)
        entries.append(f'<li><i class="swatch-{look.colour} {look.pattern}"></i>{escape(name)}</li>')
    return f"<ul>{''.join(entries)}</ul>"


def _n(value: float) -> str:
    """Format a coordinate with one decimal, which is less than a pixel."""
    return f"{value:.1f}".removesuffix(".0")
