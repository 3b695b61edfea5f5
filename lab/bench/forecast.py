"""`bertbench lab forecast`: list forecast errors for published results, each left out of its own calibration."""

import argparse
from statistics import median
from typing import Any

from bertbench.cli.arguments import emit
from bertbench.plan.calibrate import GROUPS, HeldOutForecast, leave_out, other_results
from bertbench.plan.forecast_errors import covered


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Forecast published results, each by a calibration that leaves it out, and print the errors."""
    comparisons = leave_out("row")
    other_a100s = other_results("a100")
    left_out = {}
    errors_lines = []
    for group in GROUPS:
        errors = [abs(comparison.error) for comparison in leave_out(group)]
        middle = median(errors)
        worst = max(errors)
        left_out[group] = {"median_error": round(middle, 4), "worst_error": round(worst, 4)}
        errors_lines.append(f"  their {group:<10} median{100 * middle:>5.1f} %, worst{100 * worst:>5.1f} %")
    in_range = covered([comparison.error for comparison in comparisons])
    content = {
        **left_out["row"],
        "covered": in_range,
        "left_out": left_out,
        "systems": [_comparison(comparison) for comparison in comparisons],
        "others": [_comparison(comparison) for comparison in other_a100s],
    }
    lines = ["each result, by a calibration that leaves it out:", *map(_line, comparisons)]
    lines += ["other A100s, forecast as if they were a DGX A100:", *map(_line, other_a100s)]
    lines.append(f"errors for {len(comparisons)} results, by calibrations that leave out")
    lines += errors_lines
    held_out = f"{in_range} of {len(comparisons)} held-out results"
    lines.append(f"  the 90 % interval of the other results' errors covered {held_out}")
    emit(arguments.json, content, *lines)
    return 0


def _line(comparison: HeldOutForecast) -> str:
    row = comparison.row
    return (
        f"  {row.rounds.split(';')[0]:<4}{row.submitter:<19}{row.system[:46]:<47}{row.accelerators:>5}"
        f"{comparison.predicted_s / 60:>9.2f} min, published{row.seconds / 60:>9.2f}{100 * comparison.error:>+8.1f} %"
    )


def _comparison(comparison: HeldOutForecast) -> dict[str, Any]:
    return {
        "system": comparison.row.system,
        "submitter": comparison.row.submitter,
        "round": comparison.row.rounds.split(";")[0],
        "gpus": comparison.row.accelerators,
        "predicted_min": round(comparison.predicted_s / 60, 4),
        "published_min": round(comparison.row.seconds / 60, 4),
    }
