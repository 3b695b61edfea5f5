"""Compare two runs, or two sets of runs: their settings and their time to the target.

A ratio is a ratio of geometric means, with a 95 % interval by Welch's t on the logarithms. If the interval doesn't
contain 1, there is a significant difference. Runs that missed the target, or that the judge fails, are counted but left
out of every measure. Means are over all runs that reached the target, as in `bertbench report`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertbench.common.intervals import of_mean, of_ratio
from bertbench.runs.flop_rates import flops_of
from bertbench.runs.log_spans import evaluation_s, startup_s
from bertbench.runs.run_settings import (
    Runs,
    Settings,
    differing_keys,
    reached_not_passed,
    reached_target,
    read_runs,
    stated_settings,
    value_text,
)
from bertbench.runs.sample_counts import samples_per_s, samples_to_end
from bertbench.runs.scores import RUNS, mlperf_score
from bertbench.runs.verdicts import Verdicts, finding_text, verdicts_on
from compliance.read.run import RunFacts


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


MEASURES: dict[str, Callable[[Path, RunFacts], float | None]] = {
    "time to target, s": lambda _, facts: facts.time_to_train_s,
    "samples to target": lambda _, facts: samples_to_end(facts),
    "samples/s": lambda _, facts: samples_per_s(facts),
    "TFLOP/s per device": lambda log, _: flops_of(log).tflops_per_device,
    "MFU, %": lambda log, _: _percent(flops_of(log).mfu),
    "evaluation, s": lambda _, facts: evaluation_s(facts),
    "start-up, s": lambda _, facts: startup_s(facts),
}
"""The measures by which runs that reached their target are compared, each read from a log and its folder. The first one
decides the conclusion."""


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
    runs_a = read_runs([a])
    runs_b = read_runs([b])
    verdicts_a = _verdicts(runs_a, ruleset)
    verdicts_b = _verdicts(runs_b, ruleset)
    reaching_a = _reaching(runs_a, verdicts_a)
    reaching_b = _reaching(runs_b, verdicts_b)
    measures = [
        measured(name, _positive(value_of, reaching_a), _positive(value_of, reaching_b))
        for name, value_of in MEASURES.items()
    ]
    return Comparison(
        a=_side(a, runs_a, verdicts_a),
        b=_side(b, runs_b, verdicts_b),
        configuration=_differing_settings(
            [stated_settings(log, facts) for log, facts in runs_a],
            [stated_settings(log, facts) for log, facts in runs_b],
        ),
        measures=measures,
        conclusion=_conclusion(measures[0]),
    )


def _verdicts(runs: Runs, ruleset: str | None) -> Verdicts:
    verdicts, _ = verdicts_on([log for log, _ in runs], ruleset)
    return verdicts


def _reaching(runs: Runs, verdicts: Verdicts) -> Runs:
    """Return the runs that reached their target and that the judge passes."""
    return [(log, facts) for log, facts in runs if reached_target(log, facts, verdicts[log])]


def _positive(value_of: Callable[[Path, RunFacts], float | None], runs: Runs) -> list[float]:
    """Return the positive values among those of the runs."""
    values = [value_of(log, facts) for log, facts in runs]
    return [value for value in values if value is not None and value > 0]


def _side(path: Path, runs: Runs, verdicts: Verdicts) -> Side:
    results = [(log, facts) for log, facts in runs if facts.not_a_result is None]
    times = [facts.time_to_train_s if reached_target(log, facts, verdicts[log]) else None for log, facts in results]
    failed = {}
    for log, facts in runs:
        if facts.status == "success" and verdicts[log].verdict != "pass":
            failed[str(log)] = [finding_text(log.name, finding) for finding in verdicts[log].decisive]
    return Side(
        name=str(path),
        runs=[str(log) for log, _ in runs],
        reached=len(_reaching(runs, verdicts)),
        reached_not_passed=sum(reached_not_passed(log, facts, verdicts[log]) for log, facts in runs),
        score_s=mlperf_score(times) if len(times) == RUNS else None,
        failed=failed,
    )


def measured(name: str, a: Sequence[float], b: Sequence[float]) -> Measure:
    """Return a measure, given its values on both sides, which must all be positive."""
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
    return sorted({value_text(key, run[source][key]) for run in runs if key in run.get(source, {})})


def _estimate(values: Sequence[float]) -> Estimate | None:
    if not values:
        return None
    interval = of_mean(values)
    return Estimate(interval.value, interval.half_width, len(values))


def _ratio(a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    if not a or not b:
        return None
    return Ratio(*of_ratio(b, a))
