"""Ask about a run that takes much less time per evaluation interval than the other runs of its result."""

from collections.abc import Iterator, Sequence
from statistics import median

from compliance.ask.question import NamedRun, Question, Topic, deviations_from_median

SPEED = Topic(
    "speed", "Are all runs of a result about equally fast?",
    "each takes at least 0.85 of the median time per evaluation interval, or is within six standard deviations of it",
)  # fmt: skip
_FEWEST = 3
_LEAST_SHARE = 0.85
_MOST_DEVIATIONS = 6.0


def ask(runs: Sequence[NamedRun]) -> Iterator[tuple[str, Question]]:
    """Yield the name of each log that is far faster than the others, and the question."""
    timed: list[tuple[str, float]] = []
    for run in runs:
        seconds = run.facts.time_to_train_s
        if seconds and seconds > 0 and run.facts.evaluations and run.facts.status == "success":
            timed.append((run.log, seconds / len(run.facts.evaluations)))
    if len(timed) < _FEWEST:
        return
    times = [seconds for _, seconds in timed]
    usual = median(times)
    for (log, seconds), deviation in zip(timed, deviations_from_median(times), strict=True):
        if seconds < _LEAST_SHARE * usual and deviation < -_MOST_DEVIATIONS:
            yield log, SPEED.question(f"{seconds:.3f} s per evaluation interval; the median is {usual:.3f} s")
