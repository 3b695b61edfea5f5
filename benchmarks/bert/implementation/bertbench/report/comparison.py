"""Compare two runs, or two sets of runs: their settings, curves and time to the target.

A ratio is between geometric means, with the 95 % interval of Welch's t on the logarithms: an interval without 1 shows a
difference. Runs that missed the target are counted, but left out of times and samples to target.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean, variance
from typing import Any, NamedTuple

from bertbench.common.log_spans import evaluation_s, startup_s
from bertbench.report.curves import every_step, thinned
from bertbench.report.settings import Runs, differing_keys, stated, value_text
from compliance.judge import find_logs
from compliance.log import read_events
from compliance.run import RunFacts

_CONFIDENCE = 0.95
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Side:
    """One of the two: its name, and its runs."""

    name: str
    runs: Runs

    @property
    def reached(self) -> list[RunFacts]:
        """Return the runs that reached their target."""
        return [facts for _, facts in self.runs if facts.status == "success"]

    def values(self, of: Callable[[RunFacts], float | None]) -> list[float]:
        """Return a positive number of each run that reached its target, if the log has it."""
        return [value for facts in self.reached if (value := of(facts)) is not None and value > 0]


class Estimate(NamedTuple):
    """A mean over runs, and half the width of its 95 % interval by Student's t; None with fewer than 2 runs."""

    mean: float
    half_interval: float | None
    runs: int


class Ratio(NamedTuple):
    """B over A, and its 95 % interval; None if a side has fewer than 2 runs."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Measured:
    """One measure on both sides; a side is None if no run has it."""

    name: str
    a: Estimate | None
    b: Estimate | None
    ratio: Ratio | None


class Difference(NamedTuple):
    """A setting in which the sides differ: the values on each, as text."""

    name: str
    a: tuple[str, ...]
    b: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """The comparison of two sides."""

    a: Side
    b: Side
    configuration: list[Difference]
    measures: list[Measured]
    target: float | None
    """The target of both, if they share one."""


MEASURES: tuple[tuple[str, Callable[[RunFacts], float | None]], ...] = (
    ("time to target, s", lambda facts: facts.time_to_train_s),
    ("samples to target", lambda facts: facts.samples),
    ("samples/s", lambda facts: facts.samples_per_s),
    ("evaluation, s", evaluation_s),
    ("start-up, s", startup_s),
)


def side(path: Path) -> Side:
    """Return the runs of a log or of a folder of logs. Raises CannotJudge if there is none, or one can't be read."""
    return Side(str(path), [(log, RunFacts(read_events(log))) for log in find_logs(path)])


def compared(a: Side, b: Side) -> Comparison:
    """Compare two sides."""
    measures = [measured(name, a.values(of), b.values(of)) for name, of in MEASURES]
    known = [stated(log, facts) for log, facts in (*a.runs, *b.runs)]
    targets = {settings["config.json"].get("evaluation.target") for settings in known if "config.json" in settings}
    (target,) = targets if len(targets) == 1 else (None,)
    return Comparison(
        a, b, _configuration(known[: len(a.runs)], known[len(a.runs) :]), measures,
        target if isinstance(target, float) else None,
    )  # fmt: skip


def measured(name: str, a: Sequence[float], b: Sequence[float]) -> Measured:
    """Return one measure from its values, all positive, on both sides."""
    return Measured(name, estimate(a), estimate(b), _ratio(a, b) if a and b else None)


def mean_curve(lines: Sequence[Points]) -> Points:
    """Return the mean of several curves at each common x; beyond the shortest curve, of the remaining ones."""
    at: dict[float, list[float]] = defaultdict(list)
    for x, y in chain.from_iterable(lines):
        at[x].append(y)
    return [(x, mean(values)) for x, values in sorted(at.items())]


def accuracy_curve(one: Side) -> Points:
    """Return accuracy by training samples, the mean of a side's runs."""
    return mean_curve(
        [[(e.samples, e.accuracy) for e in facts.evaluations if e.samples is not None] for _, facts in one.runs]
    )


def accuracy_by_time(one: Side) -> Points:
    """Return accuracy by seconds since run_start: the means over a side's runs at each number of training samples."""
    seconds = mean_curve(
        [
            [(e.samples, (e.time_ms - facts.started_ms) / 1e3) for e in facts.evaluations if e.samples is not None]
            for _, facts in one.runs
            if facts.started_ms is not None
        ]
    )
    accuracy = dict(accuracy_curve(one))
    return [(time, accuracy[samples]) for samples, time in seconds]


def loss_curve(one: Side) -> Points:
    """Return loss by step, the mean of a side's runs."""
    return thinned(mean_curve([every_step(log, ("loss",))["loss"] for log, _ in one.runs]))


def as_json(found: Comparison) -> dict[str, Any]:
    """Return the output of `compare --json`."""
    return {
        **{letter: _side_json(one) for letter, one in (("a", found.a), ("b", found.b))},
        "configuration": [difference._asdict() for difference in found.configuration],
        "measures": [
            {
                "name": one.name,
                "a": one.a and one.a._asdict(),
                "b": one.b and one.b._asdict(),
                "ratio": one.ratio and one.ratio._asdict(),
            }
            for one in found.measures
        ],
        "conclusion": conclusion(found),
    }


def conclusion(found: Comparison) -> str:
    """Return a sentence on the difference in time to target."""
    time = found.measures[0]
    if time.a is None or time.b is None or time.ratio is None:
        missing = [letter for letter, one in (("A", time.a), ("B", time.b)) if one is None]
        return f"no run of {' and '.join(missing)} reached its target: no times to compare"
    ratio, low, high = time.ratio
    if low is None or high is None:
        counts = f"{time.a.runs:,} of A and {time.b.runs:,} of B"
        return (
            f"B takes {ratio:.3f} times A's time to target; runs that reached it: {counts}; with fewer than 2 "
            "on a side chance and effect look alike"
        )
    interval = f"95 % interval {low:.3f} to {high:.3f}"
    if low <= 1 <= high:
        return f"no difference in time to target is shown: B over A is {ratio:.3f}, {interval}"
    return f"B takes {ratio:.3f} times A's time to target, {interval}"


def _side_json(one: Side) -> dict[str, Any]:
    return {
        "name": one.name,
        "runs": [str(log) for log, _ in one.runs],
        "reached": len(one.reached),
        "accuracy": accuracy_curve(one),
        "loss": loss_curve(one),
    }


def _configuration(a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]]) -> list[Difference]:
    """Return the settings that differ; settings that only one side has come last."""
    found = []
    for source, key in differing_keys([*a, *b]):
        texts = [
            tuple(sorted({value_text(key, one[source][key]) for one in runs if key in one.get(source, {})}))
            for runs in (a, b)
        ]
        if texts[0] != texts[1]:
            found.append(Difference(key, *texts))
    return sorted(found, key=lambda one: not (one.a and one.b))


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of values, one a run, and its 95 % interval; None without a value."""
    if not values:
        return None
    if len(values) < 2:
        return Estimate(values[0], None, 1)
    return Estimate(mean(values), _quantile(len(values) - 1) * math.sqrt(variance(values) / len(values)), len(values))


def _ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    logs = [[math.log(value) for value in values] for values in (a, b)]
    apart = mean(logs[1]) - mean(logs[0])
    if min(len(a), len(b)) < 2:
        return Ratio(math.exp(apart), None, None)
    shares = [variance(values) / len(values) for values in logs]
    if not any(shares):
        return Ratio(math.exp(apart), math.exp(apart), math.exp(apart))
    freedom = sum(shares) ** 2 / sum(share**2 / (len(values) - 1) for share, values in zip(shares, logs, strict=True))
    half = _quantile(freedom) * math.sqrt(sum(shares))
    return Ratio(math.exp(apart), math.exp(apart - half), math.exp(apart + half))


def _quantile(freedom: float) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415 - takes a quarter of a second; single runs don't need it

    return float(stdtrit(freedom, (1 + _CONFIDENCE) / 2))
