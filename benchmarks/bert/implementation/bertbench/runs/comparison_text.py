"""Show a comparison as text in a terminal."""

import math
from collections.abc import Iterator

from bertbench.common.markup import aligned, cell
from bertbench.runs.comparison import Comparison, Estimate, Ratio
from bertbench.runs.verdicts import reached_text

_MEASURES_HEADER = ["measure", "A", "B", "B / A (95 %)"]
_SETTINGS_HEADER = ["setting", "A", "B"]
_MEANS = "mean of all runs that reached the target, ± half of its 95 % interval"
_MOST_REASONS = 2  # for a log; `bertbench judge` lists all


def comparison_text(comparison: Comparison) -> str:
    """Return a comparison for a terminal."""
    settings = _setting_rows(comparison)
    paragraphs = [
        list(_who(comparison)),
        aligned(_SETTINGS_HEADER, settings, left=3) if settings else ["same known settings on both sides"],
        [*aligned(_MEASURES_HEADER, _measure_rows(comparison), left=1), _MEANS],
        [comparison.conclusion],
    ]
    return "\n\n".join("\n".join(paragraph) for paragraph in paragraphs)


def _who(comparison: Comparison) -> Iterator[str]:
    """Yield which runs are compared, and why some runs that ended with success don't count."""
    sides = (("A", comparison.a), ("B", comparison.b))
    for letter, side in sides:
        score = "" if side.score_s is None else f"; MLPerf's score {side.score_s:.1f} s, without fastest and slowest"
        reached = reached_text(side.reached, side.reached_not_passed, len(side.runs))
        yield f"{letter}: {side.name} ({reached}{score})"
    for letter, side in sides:
        for log, reasons in side.failed.items():
            for reason in reasons[:_MOST_REASONS]:
                yield f"{letter}: {log} doesn't count, because the judge doesn't pass it: {reason}"


def _setting_rows(comparison: Comparison) -> list[list[str]]:
    return [
        [setting.name, cell(" | ".join(setting.a) or "-"), cell(" | ".join(setting.b) or "-")]
        for setting in comparison.configuration
    ]


def _measure_rows(comparison: Comparison) -> list[list[str]]:
    return [
        [measure.name, _estimate_text(measure.a), _estimate_text(measure.b), _ratio_text(measure.ratio)]
        for measure in comparison.measures
    ]


def _estimate_text(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    digits = _digits(estimate.mean)
    text = f"{estimate.mean:,.{digits}f}"
    if estimate.half_interval is not None:
        text += f" ± {estimate.half_interval:,.{digits}f}"
    return text


def _digits(value: float) -> int:
    """Return the number of decimals for a mean: a CPU's rate in TFLOP/s has three digits after its zeros."""
    if value >= 1e4:
        return 0
    if value >= 0.1 or value <= 0:
        return 1
    return 2 - math.floor(math.log10(value))


def _ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    text = f"{ratio.ratio:.3f}"
    if ratio.low is not None:
        text += f" ({ratio.low:.3f} to {ratio.high:.3f})"
    return text
