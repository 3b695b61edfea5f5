"""Compare two runs, or two sets of runs: their settings, curves and time to the target.

A ratio is between geometric means, with the 95 % interval of Welch's t on the logarithms: an interval without 1 shows a
difference. Runs that missed the target, or that the judge fails, are counted, but left out of every measure. A mean is
over all runs that reached the target, as in `bertbench report`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean, variance
from typing import Any

from bertbench.report.scores import RUNS, mean_of, score
from bertbench.run_files.log_spans import evaluation_s, startup_s
from bertbench.run_files.reading import Points, accuracies, curve, thinned
from bertbench.run_files.samples import sample_counts, samples_per_s, samples_to_end
from bertbench.run_files.settings import Runs, differing_keys, reached, read_runs, stated, value_text
from bertbench.run_files.verdicts import Verdicts, finding_text, verdicts
from compliance.read.run import RunFacts

_CONFIDENCE = 0.95
MEASURES: tuple[tuple[str, Callable[[RunFacts], float | None]], ...] = (
    ("time to target, s", lambda facts: facts.time_to_train_s),
    ("samples to target", samples_to_end),
    ("samples/s", samples_per_s),
    ("evaluation, s", evaluation_s),
    ("start-up, s", startup_s),
)


def compared(a: Path, b: Path, ruleset: str | None) -> dict[str, Any]:
    """Compare the runs of two logs or folders of logs, judged by a ruleset: return the output of `compare --json`.

    Raises CannotJudge if a side has no log, or one can't be read.
    """
    sides = [read_runs([path]) for path in (a, b)]
    judged = [verdicts([log for log, _ in runs], ruleset)[0] for runs in sides]
    reaching = [
        [facts for log, facts in runs if reached(log, facts, of[log])] for runs, of in zip(sides, judged, strict=True)
    ]
    measures = [
        measured(name, *([value for facts in runs if (value := of(facts)) and value > 0] for runs in reaching))
        for name, of in MEASURES
    ]
    known = [[stated(log, facts) for log, facts in runs] for runs in sides]
    return {
        "a": _side(a, sides[0], reaching[0], judged[0]),
        "b": _side(b, sides[1], reaching[1], judged[1]),
        "configuration": _configuration(*known),
        "measures": measures,
        "conclusion": _conclusion(measures[0]),
    }


def _side(path: Path, runs: Runs, reaching: Sequence[RunFacts], judged: Verdicts) -> dict[str, Any]:
    accuracy = mean_curve([accuracies(facts) for _, facts in runs])
    seconds = mean_curve(  # since run_start, at each number of training samples
        [
            [(e.samples, (e.time_ms - began) / 1e3) for e in sample_counts(facts).evaluations if e.samples is not None]
            for _, facts in runs
            if (began := facts.started_ms) is not None
        ]
    )
    found = dict(accuracy)
    results = [(log, facts) for log, facts in runs if facts.not_a_result is None]
    times = [facts.time_to_train_s if reached(log, facts, judged[log]) else None for log, facts in results]
    return {
        "name": str(path),
        "runs": [str(log) for log, _ in runs],
        "reached": len(reaching),
        "score_s": score(times) if len(times) == RUNS else None,
        "failed": {
            str(log): [finding_text(log.name, one) for one in judged[log].decisive]
            for log, facts in runs
            if facts.status == "success" and judged[log].verdict != "pass"
        },
        "accuracy": accuracy,
        "accuracy_by_time": [(time, found[samples]) for samples, time in seconds],
        "loss": loss_curve(runs),
    }


def measured(name: str, a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """Return one measure from its values, all positive, on both sides; None for a side without values.

    A side has `mean`, `runs` and `half_interval`, half the width of the 95 % interval by Student's t; `ratio` is B over
    A, from `low` to `high`. Intervals are None with fewer than 2 runs.
    """
    return {"name": name, "a": _estimate(a), "b": _estimate(b), "ratio": _ratio(a, b) if a and b else None}


def mean_curve(lines: Sequence[Points]) -> Points:
    """Return the mean of several curves at each common x; beyond the shortest curve, of the remaining ones."""
    at: dict[float, list[float]] = defaultdict(list)
    for x, y in chain.from_iterable(lines):
        at[x].append(y)
    return [(x, mean(values)) for x, values in sorted(at.items())]


def loss_curve(runs: Runs) -> Points:
    """Return the mean loss of runs by step."""
    return thinned(mean_curve([curve(log, "loss") for log, _ in runs]))


def _conclusion(time: dict[str, Any]) -> str:
    """Return a sentence on the difference in time to target."""
    if missing := [letter.upper() for letter in "ab" if time[letter] is None]:
        return f"no run of {' and '.join(missing)} reached its target: no times to compare"
    ratio, low, high = time["ratio"].values()
    if low is None:
        counts = f"{time['a']['runs']:,} of A and {time['b']['runs']:,} of B"
        return (
            f"B takes {ratio:.3f} times A's time to target; runs that reached it: {counts}; with fewer than 2 "
            "on a side chance and effect look alike"
        )
    interval = f"95 % interval {low:.3f} to {high:.3f}"
    if low <= 1 <= high:
        return f"no difference in time to target is shown: B over A is {ratio:.3f}, {interval}"
    return f"B takes {ratio:.3f} times A's time to target, {interval}"


def _configuration(a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the settings that differ, with each side's values as text; those that only one side has come last."""
    found = []
    for source, key in differing_keys([*a, *b]):
        values = {
            letter: sorted({value_text(key, one[source][key]) for one in runs if key in one.get(source, {})})
            for letter, runs in (("a", a), ("b", b))
        }
        if values["a"] != values["b"]:
            found.append({"name": key, **values})
    return sorted(found, key=lambda one: not (one["a"] and one["b"]))


def _estimate(values: Sequence[float]) -> dict[str, float | None] | None:
    return {"mean": mean_of(values), "half_interval": _half(values), "runs": len(values)} if values else None


def _ratio(a: Sequence[float], b: Sequence[float]) -> dict[str, float | None]:
    logs = [[math.log(value) for value in values] for values in (a, b)]
    apart, half = mean(logs[1]) - mean(logs[0]), _half(*logs)
    low, high = (None, None) if half is None else (math.exp(apart - half), math.exp(apart + half))
    return {"ratio": math.exp(apart), "low": low, "high": high}


def _half(*sets: Sequence[float]) -> float | None:
    """Return half of the interval of a mean (Student's t) or of a difference of means (Welch's t).

    None if a set has fewer than 2 values.
    """
    if min(map(len, sets)) < 2:
        return None
    shares = [variance(values) / len(values) for values in sets]
    if not any(shares):
        return 0.0
    from scipy.special import stdtrit  # noqa: PLC0415 - takes a quarter of a second; single runs don't need it

    freedom = sum(shares) ** 2 / sum(s**2 / (len(values) - 1) for s, values in zip(shares, sets, strict=True))
    return float(stdtrit(freedom, (1 + _CONFIDENCE) / 2)) * math.sqrt(sum(shares))
