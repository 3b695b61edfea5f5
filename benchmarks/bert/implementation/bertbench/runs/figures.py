"""Draw the figures of a report by matplotlib, each as the text of an SVG: curves of runs, and a step of a pipeline.

A figure has no legend and no text from a log. The page beside it names the runs, each with the look of its curve.
matplotlib takes a quarter of a second to import, so only code that draws imports this module.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from bertbench.runs.json_files import Points
from bertbench.runs.trace_reader import PassBar

COLOURS = (
    "#1b6ca8", "#d9480f", "#2b8a3e", "#9c36b5", "#a07800", "#0b7285", "#c2255c", "#5f6770", "#7a4a21", "#4338ca",
)  # fmt: skip
"""As many colours as a result has runs; each stands out from white."""
_PATTERNS = ("solid", "dashed", "dotted")
_SIZE = (4.4, 2.9)  # inches of 96 pixels: a phone shows it at 0.8 of this size, with letters of 10 pixels
_STEP_WIDTH = 7.5
_STEP_HEIGHT = 0.9  # of the axis and the margins; each rank adds to it
_RANK_HEIGHT = 0.32
_LARGEST = 1e15  # larger and non-finite values are left out, because logs may contain anything
_MOST_MARKERS = 60  # a line with more points is drawn without markers
_MOST_NUMBERED = 64  # passes of a step; numbers in more of them would be illegible
_PASS_COLOURS = {"forward": COLOURS[0], "backward": COLOURS[1]}
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.grid": True,
    "grid.color": "#d8dee4",
    "axes.axisbelow": True,
    "axes.edgecolor": "#5f6770",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",  # letters as text, which is a fifth of their outlines
    "svg.hashsalt": "bertbench",  # otherwise each drawing of the same figure has other names inside
}
"""The settings of matplotlib with which figures and the pictures of docs/ are drawn."""


@dataclass(frozen=True)
class Look:
    """How a run's curve is drawn on all figures."""

    colour: str
    pattern: str
    """`solid`, `dashed` or `dotted`, which are words of matplotlib and of CSS."""


def look(index: int) -> Look:
    """Return the look of a run; from the eleventh run on, colours repeat with another pattern."""
    return Look(COLOURS[index % len(COLOURS)], _PATTERNS[index // len(COLOURS) % len(_PATTERNS)])


def curves(
    series: Sequence[Points],
    x: str,
    y: str,
    level: tuple[str, float] | None = None,
    from_zero: bool = False,
) -> str:
    """Return an SVG with a curve for each series, in the look of its index; an empty series has none.

    `x` and `y` label the axes. `level` is a dashed line with a name, such as a target. With `from_zero`, the vertical
    axis begins at 0.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=_SIZE)
        axes = figure.subplots()
        for index, points in enumerate(series):
            _draw_curve(axes, [point for point in points if _drawable(point)], look(index))
        if level:
            name, value = level
            axes.axhline(value, color="black", linestyle="dashed", linewidth=1)
            axes.annotate(name, (0.01, value), xycoords=("axes fraction", "data"), textcoords="offset points",
                          xytext=(0, 3), weight="bold")  # fmt: skip
        if from_zero:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        return svg_text(figure)


def _draw_curve(axes: Axes, points: Points, drawn_as: Look) -> None:
    marker = "." if len(points) <= _MOST_MARKERS else ""
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=drawn_as.colour,
        linestyle=drawn_as.pattern,
        linewidth=1.3,
        marker=marker,
    )


def _drawable(point: tuple[float, float]) -> bool:
    return all(math.isfinite(value) and abs(value) < _LARGEST for value in point)


def pipeline_step(bars: Sequence[PassBar]) -> str:
    """Return an SVG of a step: a row for each rank, a bar for each pass; gaps are the bubble.

    Later stages of a rank are paler. In a step with few passes, each has the number of its microbatch, from 1.
    """
    ranks = 1 + max(bar.rank for bar in bars)
    begin_ms = min(bar.began_ms for bar in bars)
    with rc_context(STYLE):
        figure = Figure(figsize=(_STEP_WIDTH, _STEP_HEIGHT + _RANK_HEIGHT * ranks))
        axes = figure.subplots()
        for bar in bars:
            left_ms = bar.began_ms - begin_ms
            width_ms = bar.ended_ms - bar.began_ms
            opacity = max(0.35, 1 - 0.25 * (bar.stage // ranks))
            axes.barh(bar.rank, width_ms, left=left_ms, height=0.8, color=_PASS_COLOURS[bar.kind], alpha=opacity)
            if len(bars) <= _MOST_NUMBERED:
                axes.text(left_ms + width_ms / 2, bar.rank, str(1 + bar.microbatch), color="white", size=8,
                          ha="center", va="center")  # fmt: skip
        handles = [Patch(color=colour) for colour in _PASS_COLOURS.values()]
        figure.legend(handles, list(_PASS_COLOURS), loc="outside upper right", ncols=2, frameon=False)
        axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("ms")
        return svg_text(figure)


def svg_text(figure: Figure) -> str:
    """Return a figure as an SVG; the same figure gives the same text."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def drawable_points(series: Sequence[Points]) -> int:
    """Return how many points of the series can be drawn."""
    return sum(map(_drawable, chain.from_iterable(series)))
