"""Draw the trials of a study's tuning: the samples that each needed, or where its run ended without the target."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from bertbench.common.atomic import new_file
from bertbench.runs.figures import COLOURS, STYLE, svg_text
from lab.journal import Record

_SIZE = (7.0, 3.6)  # inches


def draw_trials(trials: Mapping[str, Sequence[Record]], path: Path) -> None:
    """Write an SVG with a curve for each configuration, whose trials are in the order in which they ran.

    Raises RunError if the file can't be written.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=_SIZE)
        axes = figure.subplots()
        for index, (name, records) in enumerate(trials.items()):
            colour = COLOURS[index % len(COLOURS)]
            reached = [(number, record) for number, record in enumerate(records, 1) if record["samples"] is not None]
            missed = [
                (number, record["course"][-1][0])
                for number, record in enumerate(records, 1)
                if record["samples"] is None and record["course"]
            ]
            axes.plot(
                [number for number, _ in reached],
                [record["samples"] for _, record in reached],
                color=colour, marker="o", linewidth=0.8, label=f"{name}: reached the target",
            )  # fmt: skip
            axes.plot(
                [number for number, _ in missed],
                [samples for _, samples in missed],
                color=colour, marker="x", linestyle="none", label=f"{name}: ended without",
            )  # fmt: skip
        axes.set_xlabel("trial")
        axes.set_ylabel("samples")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
        text = svg_text(figure)
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
