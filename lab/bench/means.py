"""Compute means of a few measurements and their 95 % intervals, by Student's t."""

import math
import statistics
from collections.abc import Sequence

from scipy import special

CONFIDENCE = 0.95


def t_quantile(values: int) -> float:
    """Return half the width of the interval of a mean of `values` values, in standard errors."""
    return float(special.stdtrit(values - 1, (1 + CONFIDENCE) / 2))


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the width of a mean's 95 % interval, by Student's t; None for fewer than 2 values."""
    if len(values) < 2:
        return None
    return t_quantile(len(values)) * statistics.stdev(values) / len(values) ** 0.5


def geometric_mean(ratios: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the geometric mean of ratios and its 95 % interval; None if there are too few ratios."""
    if not ratios:
        return None, None, None
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    half = half_interval(logs)
    if half is None:
        return math.exp(mean), None, None
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)
