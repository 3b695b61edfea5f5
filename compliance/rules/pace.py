"""Rules about pace: no part of a run is faster than possible."""

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from compliance import hardware
from compliance.finding import Breach, Case, Rule
from compliance.rules.samples import in_samples, reference_samples
from compliance.run import number

_CLOCK = "training_rules.adoc: run results"
_FEWEST_INTERVALS = 5  # for a median
_FASTER = 1.5
# A published run's intervals took 0.35 s at first and 0.2 s in the end: lines may be written that late.
_LEAST_CUT_MS = 500.0
_FEWEST_SAMPLES = 0.6  # of the reference's mean; a single run may be lucky


class _Interval(NamedTuple):
    """The time between two evaluations, or from run_start to the first; at the run's median pace, `expected_ms`."""

    line: int
    took_ms: float
    expected_ms: float


def _cut(case: Case) -> Iterator[Breach]:
    intervals = _intervals(case)
    for index, one in enumerate(intervals):
        missing = one.expected_ms - one.took_ms
        if missing < _LEAST_CUT_MS or one.took_ms * _FASTER >= one.expected_ms:
            continue
        # A line written late makes one interval longer and its neighbour shorter: then no time is missing.
        # The first interval is longer anyway: it includes the start.
        beside = [near for at in (index - 1, index + 1) if 0 < at < len(intervals) for near in (intervals[at],)]
        if any(near.took_ms - near.expected_ms >= missing / 2 for near in beside):
            continue
        found = (
            f"{one.took_ms / 1e3:.3f} s up to this evaluation, where the run's pace takes {one.expected_ms / 1e3:.3f} s"
        )
        yield Breach(one.line, found, None, "error" if case.closed else "warning")


def _intervals(case: Case) -> list[_Interval]:
    start = case.facts.first("run_start")
    evaluations = [one for one in case.facts.evaluations if math.isfinite(one.time_ms)]
    if start is None or not math.isfinite(start.time_ms) or len(evaluations) <= _FEWEST_INTERVALS:
        return []
    at = [one.samples for one in evaluations]
    if None in at or len(set(at)) == 1:  # counted by number
        at = [float(index + 1) for index in range(len(at))]
    counts = [0.0, *(count for count in at if count is not None)]
    times = [start.time_ms, *(one.time_ms for one in evaluations)]
    amounts = [max(0.0, b - a) for a, b in pairwise(counts)]
    took = [b - a for a, b in pairwise(times)]
    paces = [time / amount for time, amount in list(zip(took, amounts, strict=True))[1:] if amount > 0 and time > 0]
    if len(paces) < _FEWEST_INTERVALS:
        return []
    pace = median(paces)
    return [
        _Interval(evaluation.line, time, amount * pace)
        for evaluation, time, amount in zip(evaluations, took, amounts, strict=True)
    ]


def _rate(case: Case) -> Iterator[Breach]:
    """Find closed runs that are too fast; the arithmetic of an open run is unknown."""
    seconds, stop = case.facts.time_to_train_s, case.facts.first("run_stop")
    batch = number(case.facts.global_batch_size)
    if not case.closed or seconds is None or seconds <= 0 or batch is None or batch <= 0 or stop is None:
        return
    counted, basis = in_samples(case), "the samples of its last evaluation"
    samples = counted[-1][1] if counted else None
    if samples is None and case.facts.status == "success":
        reference = reference_samples(case.ruleset, batch)
        samples = reference and _FEWEST_SAMPLES * reference
        basis = f"{_FEWEST_SAMPLES} of the reference's samples"
    if samples is None:
        return
    rate = samples / seconds
    if rate / batch > hardware.FASTEST_STEPS_A_SECOND:
        found = f"{rate / batch:,.0f} steps/s, by {basis} and the time from run_start to run_stop"
        yield Breach(stop.line, found, f"at most {hardware.FASTEST_STEPS_A_SECOND:,.0f} steps/s")
    bound = hardware.fastest(case.system)
    if bound is not None and rate > bound[0]:
        found = f"{rate:,.0f} samples/s, by {basis} and the time from run_start to run_stop"
        yield Breach(stop.line, found, f"at most {bound[0]:,.0f} samples/s: {bound[1]}")


RULES = (
    Rule(
        "pace", "No evaluation interval is 1.5 times as fast as the run's median", _CLOCK, "error",
        "check the clock of the host; log every event when it happens", _cut,
    ),
    Rule(
        "rate", "A closed run is no faster than its hardware", _CLOCK, "error",
        "check the unit of time_ms, and the description of the system", _rate,
    ),
)  # fmt: skip
