"""Compare two runs, or two sets of runs: their settings and their time to the target.

A ratio is a ratio of geometric means, with a 95 % interval by Welch's t on the logarithms. If the interval doesn't
contain 1, there is a significant difference. Runs that missed the target, or that the judge fails, are counted but left
out of every measure. Means are over all runs that reached the target, as in `bertbench report`.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertbench.common.intervals import of_mean, of_ratio
from bertbench.common.markup import cell
from bertbench.common.tables import aligned
from bertbench.runs.groups import mlperf_score
from bertbench.runs.judged_runs import JudgedRun, breach_text, judged_runs, reached_text
from bertbench.runs.run_settings import Settings, differing_keys, stated_settings, value_text
from bertbench.runs.run_summary import RunSummary
from compliance.read.find import find_logs
from compliance.read.source import CannotJudge

_MEASURES_HEADER = ["measure", "A", "B", "B / A (95 %)"]
_SETTINGS_HEADER = ["setting", "A", "B"]
_MEANS = "mean of all runs that reached the target, ± half of its 95 % interval"
_MOST_REASONS = 2  # for a log; `bertbench judge` lists all


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


MEASURES: dict[str, Callable[[RunSummary], float | None]] = {
    "time to target, s": lambda run: run.time_to_train_s,
    "samples to target": lambda run: run.samples,
    "samples/s": lambda run: run.samples_per_s,
    "TFLOP/s per device": lambda run: run.flops.tflops_per_device,
    "MFU, %": lambda run: _percent(run.flops.mfu),
    "evaluation, s": lambda run: run.evaluation_s,
    "start-up, s": lambda run: run.startup_s,
}
"""The measures by which runs that reached their target are compared. The first one decides the conclusion."""


@dataclass(frozen=True)
class Estimate:
    """The mean over one side's runs; `half_interval` is half the width of its 95 % interval by Student's t."""

    mean: float
    half_interval: float | None
    """None if there are fewer than 2 runs."""
    runs: int


@dataclass(frozen=True)
class Ratio:
    """The ratio B / A with its 95 % interval, `low` to `high`; its ends are None with fewer than 2 runs on a side."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Measure:
    """One measure for both sides; None for a side without values."""

    name: str
    a: Estimate | None
    b: Estimate | None
    ratio: Ratio | None


@dataclass(frozen=True)
class DifferingSetting:
    """A setting, with the values of each side as text."""

    name: str
    a: list[str]
    b: list[str]


@dataclass(frozen=True)
class Side:
    """One of the two sets of runs."""

    name: str
    runs: list[str]
    reached: int
    """The number of runs that reached the target and that the judge passes."""
    reached_not_passed: int
    """The number of runs that reached the target, but whose logs the judge doesn't pass."""
    score_s: float | None
    failed: dict[str, list[str]]
    """Why the judge fails runs that ended with success, by log."""


@dataclass(frozen=True)
class Comparison:
    """The content of `compare --json`."""

    a: Side
    b: Side
    configuration: list[DifferingSetting]
    measures: list[Measure]
    conclusion: str


def compared(a: Path, b: Path, ruleset: str | None) -> Comparison:
    """Compare the runs of two logs or folders of logs, judged by a ruleset.

    Raises CannotJudge if a side has no log, or if a log can't be read.
    """
    runs_a = _read_side(a, ruleset)
    runs_b = _read_side(b, ruleset)
    measures = [
        measured(name, _positive(value_of, runs_a), _positive(value_of, runs_b)) for name, value_of in MEASURES.items()
    ]
    return Comparison(
        a=_side(a, runs_a),
        b=_side(b, runs_b),
        configuration=_differing_settings(
            [stated_settings(judged.run) for judged in runs_a],
            [stated_settings(judged.run) for judged in runs_b],
        ),
        measures=measures,
        conclusion=_conclusion(measures[0]),
    )


def _read_side(path: Path, ruleset: str | None) -> list[JudgedRun]:
    runs = judged_runs(find_logs(path), ruleset)
    for judged in runs:
        if not judged.run.facts.events():
            raise CannotJudge(judged.why_no_log)
    return runs


def _positive(value_of: Callable[[RunSummary], float | None], runs: Sequence[JudgedRun]) -> list[float]:
    """Return the positive values among those of the runs that reached their target and that the judge passes."""
    values = [value_of(judged.run) for judged in runs if judged.reached]
    return [value for value in values if value is not None and value > 0]


def _side(path: Path, runs: Sequence[JudgedRun]) -> Side:
    failed = {}
    for judged in runs:
        if judged.run.facts.status == "success" and judged.verdict != "pass":
            failed[str(judged.run.log)] = [breach_text(judged.run.log.name, breach) for breach in judged.breaches]
    return Side(
        name=str(path),
        runs=[str(judged.run.log) for judged in runs],
        reached=sum(judged.reached for judged in runs),
        reached_not_passed=sum(judged.reached_not_passed for judged in runs),
        score_s=mlperf_score([judged for judged in runs if judged.run.not_a_result is None]),
        failed=failed,
    )


def measured(name: str, a: Sequence[float], b: Sequence[float]) -> Measure:
    """Return a measure, given its values on both sides, which must all be positive."""
    with warnings.catch_warnings():
        # scipy warns of lost precision if a side's values are nearly equal; their interval is then nearly a point
        warnings.simplefilter("ignore", RuntimeWarning)
        return Measure(name, _estimate(a), _estimate(b), _ratio(a, b))


def _conclusion(time: Measure) -> str:
    """Return a sentence about the difference in time to target."""
    if time.a is None or time.b is None or time.ratio is None:
        missing = [letter for letter, estimate in (("A", time.a), ("B", time.b)) if estimate is None]
        return (
            f"no run of {' and '.join(missing)} reached its target in a log that the judge passes, so there are no "
            "times to compare"
        )
    ratio = time.ratio
    if ratio.low is None or ratio.high is None:
        counts = f"{time.a.runs:,} of A and {time.b.runs:,} of B"
        return (
            f"B takes {ratio.ratio:.3f} times A's time to target; runs that reached it: {counts}; with fewer than 2 "
            "runs per side, there is no confidence interval"
        )
    interval = f"95 % interval {ratio.low:.3f} to {ratio.high:.3f}"
    if ratio.low <= 1 <= ratio.high:
        return f"no significant difference in time to target: B / A is {ratio.ratio:.3f}, {interval}"
    return f"B takes {ratio.ratio:.3f} times A's time to target, {interval}"


def _differing_settings(a: Sequence[Settings], b: Sequence[Settings]) -> list[DifferingSetting]:
    """Return the settings that differ; settings that only one side has come last."""
    differing = []
    for source, key in differing_keys([*a, *b]):
        setting = DifferingSetting(key, _values(a, source, key), _values(b, source, key))
        if setting.a != setting.b:
            differing.append(setting)
    on_both_sides = [setting for setting in differing if setting.a and setting.b]
    on_one_side = [setting for setting in differing if not (setting.a and setting.b)]
    return on_both_sides + on_one_side


def _values(runs: Sequence[Settings], source: str, key: str) -> list[str]:
    """Return the values of a setting as text; an empty one says as little as a setting that is absent."""
    texts = {value_text(key, run[source][key]) for run in runs if key in run.get(source, {})}
    return sorted(text for text in texts if text.strip())


def _estimate(values: Sequence[float]) -> Estimate | None:
    if not values:
        return None
    interval = of_mean(values)
    return Estimate(interval.value, interval.half_width, len(values))


def _ratio(a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    if not a or not b:
        return None
    return Ratio(*of_ratio(b, a))


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
