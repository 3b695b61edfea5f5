"""Show the runs of `lab squad`: means over seeds, ratios to the baseline, and notes about what they don't show."""

import argparse
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from bertbench.common.intervals import of_geometric_mean
from bertbench.common.tables import table_lines
from bertbench.config import System
from bertbench.distributed.cores import available_cores
from bertbench.machine.processor import processor
from lab.bench.noise_scale import NoiseScale
from lab.bench.squad_run import BASELINE, LAYOUTS

_BETTER_BY = 10.0  # points of F1 above answering nothing that make scores meaningful
_COLUMNS = {
    "layout": "{0[layout]}", "batch": "{0[batch]:,}", "seconds": "{0[seconds]:,.1f}", "samples/s": "{0[rate]:,.0f}",
    "loss": "{0[loss]:.4f}", "exact": "{0[exact]:.1f}", "F1": "{0[f1]:.1f}", "loss differs by": "{0[difference]:.0e}",
    "device use": "{0[use]:.0%}", "bubble": "{0[bubble]:.0%}", "efficiency": "{0[efficiency]:.0%}",
}  # fmt: skip
_RATIO_COLUMNS = {
    "ratio to the baseline": "{0[layout]}", "seconds": "{0[seconds]:}", "samples/s": "{0[samples_per_s]:}",
    "loss": "{0[validation_loss]:}", "device use": "{0[device_use]:}", "goodput": "{0[goodput]:}",
}  # fmt: skip


def squad_lines(
    arguments: argparse.Namespace,
    system: System,
    rows: Sequence[dict[str, Any]],
    noise: Sequence[NoiseScale],
    nothing: float,
) -> list[str]:
    """Return the tables, and notes about what their numbers don't show."""
    estimates = ", ".join(f"{scale.samples:,.0f} ({scale.low:,.0f} to {scale.high:,.0f})" for scale in noise)
    lines = [
        f"{arguments.system}, {system.squad.epochs} epochs; means of {arguments.seeds} seeds on {available_cores()} "
        f"cores of {processor()}; ratios are geometric means with 95 % intervals.",
        *layout_tables(rows),
        "",
        f"Noise scale after one epoch, for each seed, with 95 % intervals: {estimates} samples.",
    ]
    best = fmean(row["f1"] for row in rows if row["layout"] == BASELINE.name)
    if best < nothing + _BETTER_BY:
        lines.append(
            f"The baseline's F1, {best:.1f} %, is less than {_BETTER_BY:.0f} points above the F1 without answers, "
            f"{nothing:.1f} %, so only the speeds are meaningful"
        )
    return lines


def layout_tables(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of means over seeds and one of ratios to the baseline, and the meaning of their star."""
    means = []
    ratios = []
    for layout in LAYOUTS:
        seeds = [row for row in rows if row["layout"] == layout.name]
        if seeds:
            means.append(_mean_row(seeds))
        if seeds and layout != BASELINE:
            ratios.append(_ratio_row(seeds))
    lines = [*table_lines(means, _COLUMNS), "", *table_lines(ratios, _RATIO_COLUMNS)]
    if any(row["shares_cores"] for row in rows):
        lines.append("* has more ranks than cores; they share cores, so the times don't show the effect of the layout")
    return lines


def _mean_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over a layout's seeds, for the table."""
    first = rows[0]
    differences = [row["largest_loss_difference"] for row in rows]
    losses = [row["validation_loss"] for row in rows]
    uses = [row["device_use"] for row in rows]
    bubbles = [row["bubble"] for row in rows]
    return {
        "layout": _marked(first),
        "batch": first["global_batch_size"],
        "seconds": fmean(row["seconds"] for row in rows),
        "rate": fmean(row["samples_per_s"] for row in rows),
        "loss": None if None in losses else fmean(losses),
        "exact": fmean(row["exact"] for row in rows),
        "f1": fmean(row["f1"] for row in rows),
        "difference": None if None in differences else max(differences),
        "use": None if None in uses else fmean(uses),
        "bubble": None if None in bubbles else fmean(bubbles),
        "efficiency": fmean(row["statistical_efficiency"] for row in rows),
    }


def _ratio_row(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the means, over the seeds, of a layout's ratios to the baseline, with their intervals."""
    shown = {"layout": _marked(rows[0])}
    for measure_name in rows[0]["of_baseline"]:
        shown[measure_name] = _ratio_text([row["of_baseline"][measure_name] for row in rows])
    shown["goodput"] = _ratio_text([row["goodput_ratio"] for row in rows])
    return shown


def _ratio_text(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < len(ratios):
        return "-"
    mean, low, high = of_geometric_mean(known)
    interval = "" if low is None or high is None else f" ({low:.0%} to {high:.0%})"
    return f"{mean:.0%}{interval}"


def _marked(row: dict[str, Any]) -> str:
    """Return the name of a row's layout, with a star if its ranks share cores."""
    return f"{row['layout']}*" if row["shares_cores"] else row["layout"]
