"""Select the runs of a result that count: all but the fastest and slowest (MLPerf Training rules)."""

from collections.abc import Sequence
from statistics import mean

_FEWEST_TO_DROP_FROM = 3  # with fewer, nothing would be left


def counted(times: Sequence[float | None]) -> list[bool]:
    """Return for each run whether its time counts; a time of None means that the run failed.

    A single failure counts as the slowest run, which is dropped. With more failures, there is no result under the
    rules; we then treat the successful runs as if they were all.
    """
    successful = sorted((time, run) for run, time in enumerate(times) if time is not None)
    kept = [run for _, run in successful]  # the fastest first
    failures = len(times) - len(kept)
    is_one_failure = failures == 1
    ranked = len(kept) + 1 if is_one_failure else len(kept)
    if ranked >= _FEWEST_TO_DROP_FROM:
        kept = kept[1:] if is_one_failure else kept[1:-1]
    return [run in kept for run in range(len(times))]


def olympic_mean(times: Sequence[float | None]) -> float:
    """Return the mean of the times that count. Raises StatisticsError if all runs failed."""
    return mean(time for time, counts in zip(times, counted(times), strict=True) if counts and time is not None)
