"""Ask about an interval between evaluations that takes far less time, for its samples, than the run's others."""

from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from compliance.ask.question import Question, Topic, deviations_from_median
from compliance.read.case import Case
from compliance.read.run import LoggedEvaluation

PACE = Topic(
    "pace", "Does each interval between evaluations take about as long as the others?",
    "every interval takes at least three quarters of the run's median, or is within eight standard deviations of it",
)  # fmt: skip
_FEWEST = 4
_LEAST_SHARE = 0.75
_MOST_DEVIATIONS = 8.0
_LEAST_CUT_MS = 1_000.0
"""A line may be written late, or by a host with another clock; the next interval is then shorter by the same time."""


class _Interval(NamedTuple):
    """The interval between two evaluations; it ends with `evaluation`."""

    evaluation: LoggedEvaluation
    milliseconds: float
    samples: float


def ask(case: Case) -> Iterator[Question]:
    """Ask about the first interval that is far shorter than the others, unless a longer one before makes up for it."""
    evaluations = case.evaluations
    if len(evaluations) <= _FEWEST:
        return
    intervals = [
        _Interval(after, after.time_ms - before.time_ms, (after.samples or 0.0) - (before.samples or 0.0))
        for before, after in pairwise(evaluations)
    ]
    times_ms = _times_for_equal_samples(intervals)
    usual_ms = median(times_ms)
    deviations = deviations_from_median(times_ms)
    late_ms = 0.0
    for interval, time_ms, deviation in zip(intervals, times_ms, deviations, strict=True):
        cut_ms = usual_ms - time_ms
        is_short = time_ms < _LEAST_SHARE * usual_ms and deviation < -_MOST_DEVIATIONS and cut_ms > _LEAST_CUT_MS
        if is_short and cut_ms > 1.1 * late_ms + _LEAST_CUT_MS:
            figure = f"{time_ms / 1e3:.3f} s since the evaluation before; the median is {usual_ms / 1e3:.3f} s"
            yield PACE.question(figure, interval.evaluation.line)
            return
        late_ms = max(0.0, late_ms - cut_ms)


def _times_for_equal_samples(intervals: list[_Interval]) -> list[float]:
    """Return each interval's time, scaled to the median number of samples; unchanged if the log counts no samples."""
    counts = [interval.samples for interval in intervals]
    usual = median(counts)
    if usual > 0 and min(counts) > 0:
        return [interval.milliseconds * usual / interval.samples for interval in intervals]
    return [interval.milliseconds for interval in intervals]
