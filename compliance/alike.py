"""Compare the runs of a package by their measurements: a copy shares them, under whatever system, seed or offset.

A run is a few sets of numbers, made once from its whole log. Sets ignore order and lost evaluations, and intervals of
time offsets. Numbers count only if they are so far apart that chance doesn't repeat them.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from statistics import correlation, linear_regression, median, pstdev
from typing import NamedTuple

from compliance.finding import Finding, Findings, Severity
from compliance.rules.quantities import measured
from compliance.run import RunFacts, number

MEND = "run the benchmark again; from more than ten runs, take ten consecutive ones"
_FINE = 5  # decimals: accuracies with fewer can agree by chance
_ACCURACY = 2e-6  # two accuracies that differ by less are the same
_EQUAL = {"intervals": 1e-3, "samples": 1.0}  # two numbers of other kinds
_APART = 40  # between neighbours in a set, as a median: of 3,000 pairs of published runs none shares an eighth
_FEWEST = 4  # shared numbers; 15,000 pairs of published runs share two accuracies at most
MOST_KEPT = 5_000  # events of a key that are kept and compared; a run has some tens of evaluations
_DISTINCT = 50  # or most of the numbers: equal ones rank by their place
# 1 - Spearman's coefficient of changes, for each number above the fewest and at most. Of a million pairs of jittering
# runs, 20 are below it with 12 evaluations, 5 with 14 and none with 17.
_RANKS_APART, _MOST_APART, _FEWEST_RANKED = 0.006, 0.05, 9
# From following another run: a copy, or one to ask about; 15,000 pairs of published runs are apart by 6e-4 or more.
_NEAR, _CLOSE, _FEWEST_NEAR = 3e-5, 1.5e-4, 6
_IN_STEP_S = 1e-3  # times that follow another run's; those of the steadiest published pod are apart by 2.6e-3


class Trace(NamedTuple):
    """One run's measurements: `sets` by kind, as whole multiples of what is taken as equal."""

    name: str
    closed: bool
    course: Sequence[float]
    times_s: Sequence[float]
    paces: Sequence[float]
    sets: Mapping[str, frozenset[int]]


def trace(name: str, facts: RunFacts | None) -> Trace:
    """Return the measurements of a run; none for a log that can't be judged."""
    facts = facts or RunFacts([])
    evaluations = facts.evaluations[:MOST_KEPT]
    accuracies = [one.accuracy for one in evaluations]
    times = [time for time, _ in facts.course[:MOST_KEPT]]
    samples = [one.samples for one in evaluations if one.samples is not None]
    gaps = [b - a for a, b in pairwise(samples)]
    paces = [(b - a) / (gap or 1.0) for (a, b), gap in zip(pairwise(times), gaps, strict=False)]
    packed = 2 * len(set(gaps)) > len(samples)  # others count alike in all runs
    found = [one for event in facts.events() for one in measured(event)]
    losses, rates = ([number(value) or 0.0 for was, _, value in found if was == kind] for kind in ("loss", "rate"))
    measurements = ("accuracies", accuracies), ("losses", losses), ("throughputs", rates)
    kinds = {kind: list(filter(_is_fine, values)) for kind, values in measurements} | {
        "changes of loss": [b - a for a, b in pairwise(losses) if _is_fine(a)],
        "intervals": [b - a for a, b in pairwise([0.0, *times])],
        "samples": samples if packed else [],
    }
    sets = {kind: _numbers(values, _EQUAL.get(kind, _ACCURACY)) for kind, values in kinds.items()}
    return Trace(name, facts.division == "closed", accuracies, times, paces, sets)


def _is_fine(value: float) -> bool:
    return round(value, _FINE) != value


def _numbers(values: Sequence[float], equal: float) -> frozenset[int]:
    found = frozenset(round(value / equal) for value in values if abs(value) < 1e15 * equal)
    gaps = [b - a for a, b in pairwise(sorted(found))]
    step = math.gcd(*found)  # as of a clock of whole seconds
    return found if gaps and median(gaps) > _APART * step else frozenset()


def shared(one: Mapping[str, frozenset[int]], other: Mapping[str, frozenset[int]]) -> list[str]:
    """Return the kinds of numbers that two runs share: half of the smaller set, or four accuracies."""
    kinds = []
    for kind, a in one.items():
        b = other.get(kind, frozenset())
        common = len(a & b) + sum((at + 1 in b or at - 1 in b) and at not in b for at in a)
        if common >= _FEWEST and (kind == "accuracies" or 2 * common >= min(len(a), len(b))):
            kinds.append(kind)
    return kinds


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how far two runs' accuracies are from following each other linearly: training has noise."""
    count = min(len(one), len(other))
    if count < _FEWEST_NEAR or pstdev(one[:count]) < _NEAR:  # a constant has no slope
        return math.inf
    slope, _ = linear_regression(one[:count], other[:count])
    return pstdev(b - slope * a for a, b in zip(one, other, strict=False)) if 0.5 < slope < 2 else math.inf


def follows(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether numbers rise and fall as others do, at any scale and offset and with a little noise."""
    count = min(len(one), len(other), MOST_KEPT)
    changes = [[b - a for a, b in pairwise(numbers[:count])] for numbers in (one, other)]
    if count <= _FEWEST_RANKED or any(len(set(values)) < min(_DISTINCT, 0.8 * count) for values in changes):
        return False
    apart = 1 - correlation(*map(_ranks, changes))
    return apart < min(_MOST_APART, _RANKS_APART * (count - _FEWEST_RANKED))


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=values.__getitem__)
    return sorted(range(len(values)), key=order.__getitem__)


def _in_time(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether evaluations come the same milliseconds after the start, or all of them later or slower by as much.

    Whole seconds meet by chance.
    """
    apart = [round((a - b) * 1e3) for a, b in zip(one, other, strict=False) if abs(a - b) < 1e12]
    in_step = len(apart) > _FEWEST_RANKED and _apart(one, other) < _IN_STEP_S
    return any(at % 1 for at in one) and (in_step or apart.count(0) >= max(3, len(apart) / 2))


def copies(traces: Sequence[Trace]) -> Findings:
    """Find runs with the measurements of another; none of the published results in the tests has any."""
    found: dict[str, tuple[Trace, str, list[str]]] = {}
    for one, other in combinations(traces, 2):
        if other.name not in found:
            kinds = shared(one.sets, other.sets)
            apart = _apart(one.course, other.course)
            in_time = _in_time(one.times_s, other.times_s)
            kinds = kinds or ["accuracies"] * (apart < _NEAR) or ["times"] * in_time or ["curve"] * (apart < _CLOSE)
            if not kinds and len(one.times_s) == len(other.times_s) and not one.sets["samples"]:
                kinds = ["rhythm"] * follows(one.paces, other.paces)
            if kinds:
                found[other.name] = other, one.name, kinds
    times = Counter(accuracy for one in traces if one.name not in found for accuracy in one.sets["accuracies"])
    for one in traces:
        own = one.sets["accuracies"]
        if len(own) >= _FEWEST_NEAR and 2 * sum(times[accuracy] > 1 for accuracy in own) >= len(own):
            found.setdefault(one.name, (one, "several others", ["accuracies"]))
    for copy, original, kinds in found.values():
        # Packed batches of one order of the data have the same samples; runs may share a rhythm, and nearly a curve.
        severity: Severity = "error" if copy.closed and kinds not in (["samples"], ["rhythm"], ["curve"]) else "warning"
        text = f"{copy.name}: the {' and '.join(kinds)} of {original}"
        yield Finding("copied-run", severity, text, "runs with measurements of their own", MEND)
