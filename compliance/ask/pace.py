"""Ask about an interval between evaluations that is far shorter than the run's others, in time for its samples."""

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from compliance.ask.question import Question, Topic, deviations_from_median
from compliance.read.case import Case

PACE = Topic(
    "pace", "Does every interval between evaluations take its time?",
    "at least three quarters of the run's median, or within eight deviations of it",
)  # fmt: skip
_FEWEST = 4
_LEAST_SHARE, _MOST_DEVIATIONS = 0.75, 8.0
_LEAST_CUT_MS = 1_000.0
"""A line may be written late, or by a host with another clock; the next interval is then shorter by as much."""


def ask(case: Case) -> Iterator[Question]:
    """Ask about the shortest interval that lies far below the others, unless the one before took as much longer."""
    evaluations = case.evaluations
    if len(evaluations) <= _FEWEST:
        return
    intervals = []
    for before, after in pairwise(evaluations):
        samples = (after.samples or 0.0) - (before.samples or 0.0)
        intervals.append((after, after.time_ms - before.time_ms, samples))
    counts = [samples for *_, samples in intervals]
    usual = median(counts)
    if usual > 0 and min(counts) > 0:
        times = [took * usual / samples for _, took, samples in intervals]
    else:
        times = [took for _, took, _ in intervals]
    pace = median(times)
    deviations = deviations_from_median(times)
    late = 0.0
    for (evaluation, _, _), took, deviation in zip(intervals, times, deviations, strict=True):
        cut = pace - took
        is_short = took < _LEAST_SHARE * pace and deviation < -_MOST_DEVIATIONS and cut > _LEAST_CUT_MS
        if is_short and cut > 1.1 * late + _LEAST_CUT_MS:
            yield PACE.question(
                f"{took / 1e3:.3f} s up to this evaluation, where the median is {pace / 1e3:.3f} s", evaluation.line
            )
            return
        late = max(0.0, late - cut)
