"""Average runs: the mean of all that reached the target, and MLPerf's score of a result, which leaves out two runs.

In every command, a mean is over all runs that reached their target. Only a result with ten runs has a score, as MLPerf
Training's rules define it: the mean without the fastest and the slowest run, where one failed run counts as the
slowest.
"""

import math
from collections.abc import Sequence
from statistics import mean

from compliance import runs_per_result

RUNS = runs_per_result("bert")
"""The number of runs in a result."""


def mean_of(values: Sequence[float | None]) -> float | None:
    """Return the mean of runs that reached the target; None if there are none, or if a value is unknown."""
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None


def counted_in_score(values: Sequence[float | None]) -> list[bool]:
    """Return, for each run of a result, whether its value counts in the score; a failed run has the value None."""

    def place(run: int) -> float:
        value = values[run]
        return math.inf if value is None else value

    fastest_first = sorted(range(len(values)), key=place)
    counted = fastest_first[1:-1]
    return [run in counted for run in range(len(values))]


def mlperf_score(values: Sequence[float | None]) -> float | None:
    """Return MLPerf's score of runs; None if there are fewer than ten, or if more than one failed."""
    failed = sum(value is None for value in values)
    if len(values) < RUNS or failed > 1:
        return None
    return mean_of([value for value, counts in zip(values, counted_in_score(values), strict=True) if counts])
