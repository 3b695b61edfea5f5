"""Compute 95 % intervals of means, ratios and medians, by scipy: for benches, studies and comparisons of runs alike."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A value, and the ends of its 95 % interval, which are None if there are too few measurements."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """Return half the width of an interval around its middle."""
        return None if self.low is None else self.value - self.low


def of_mean(values: Sequence[float]) -> Interval:
    """Return the mean with its interval by Student's t; it has none for fewer than 2 values."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return Interval(mean)
    if min(values) == max(values):
        return Interval(mean, mean, mean)
    from scipy import stats  # noqa: PLC0415 - takes half a second, and single runs don't need it

    low, high = stats.ttest_1samp(values, 0).confidence_interval(CONFIDENCE)
    return Interval(mean, float(low), float(high))


def of_difference(values: Sequence[float], others: Sequence[float]) -> Interval:
    """Return the difference of two means with its interval by Welch's t; it has none for fewer than 2 values."""
    difference = statistics.mean(values) - statistics.mean(others)
    if min(len(values), len(others)) < 2:
        return Interval(difference)
    if min(values) == max(values) and min(others) == max(others):
        return Interval(difference, difference, difference)
    from scipy import stats  # noqa: PLC0415 - as above

    low, high = stats.ttest_ind(values, others, equal_var=False).confidence_interval(CONFIDENCE)
    return Interval(difference, float(low), float(high))


def of_geometric_mean(ratios: Sequence[float]) -> Interval:
    """Return the geometric mean of ratios with its interval, that of the mean of their logarithms."""
    return _exponential(of_mean([math.log(ratio) for ratio in ratios]))


def of_ratio(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Return the ratio of two independent geometric means, with its interval by Welch's t of the logarithms."""
    return _exponential(of_difference([math.log(value) for value in above], [math.log(value) for value in below]))


def _exponential(logarithm: Interval) -> Interval:
    """Return the interval of a number whose logarithm has this one."""
    low, high = (None if end is None else math.exp(end) for end in logarithm[1:])
    return Interval(math.exp(logarithm.value), low, high)


def of_median(values: Sequence[float], tests: int = 1) -> Interval:
    """Return the median with its interval by the sign test, to four digits; one interval needs at least 6 values.

    The intervals of `tests` medians all hold with a probability of 95 % (Bonferroni).
    """
    from scipy import stats  # noqa: PLC0415 - as above

    rounded = [round(value, 4) for value in values]
    ends = stats.quantile_test(rounded, p=0.5).confidence_interval(1 - (1 - CONFIDENCE) / tests)
    low, high = (None if math.isnan(end) else float(end) for end in ends)
    return Interval(statistics.median(rounded), low, high)


def p_value(differences: Sequence[float]) -> float:
    """Return the probability that the mean is by chance as far from 0, by the two-sided paired t-test."""
    if min(differences) == max(differences):
        return 0.0 if differences[0] else 1.0
    from scipy import stats  # noqa: PLC0415 - as above

    return float(stats.ttest_1samp(differences, 0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, corrected for their number (Holm 1979)."""
    tests = len(p_values)
    corrected = [0.0] * tests
    largest = 0.0
    for rank, test in enumerate(sorted(range(tests), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (tests - rank) * p_values[test]))
        corrected[test] = largest
    return corrected
