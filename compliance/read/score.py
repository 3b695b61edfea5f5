"""Select the runs of a result that count: all but the fastest and slowest (MLPerf Training rules)."""

from collections.abc import Sequence
from statistics import mean

_FEWEST_TO_DROP_FROM = 3  # below it nothing would be left


def counted(times: Sequence[float | None]) -> list[bool]:
    """Return for each run whether its time counts; None is a failed run.

    One failure is the dropped slowest. With more, the rules give no result, and the successful runs are treated as
    if they were all.
    """
    reached = [index for _, index in sorted((time, index) for index, time in enumerate(times) if time is not None)]
    # a single failure is the last of the ranked
    ranked = len(times) if len(times) - len(reached) < 2 else len(reached)
    kept = reached[1 : ranked - 1] if ranked >= _FEWEST_TO_DROP_FROM else reached
    return [index in kept for index in range(len(times))]


def olympic_mean(times: Sequence[float | None]) -> float:
    """Return the mean of the times that count. Raises StatisticsError if all runs failed."""
    return mean(time for time, counts in zip(times, counted(times), strict=True) if counts and time is not None)
