"""Compare arms by their samples to target: means and paired differences with 95 % intervals.

A seed fixes initial weights and the order of the data, so pairing by seed cancels much of the noise.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

_CONFIDENCE = 0.95
SAMPLES, SECONDS = "samples_to_target", "seconds_to_target"

Row = Mapping[str, Any]
"""One seed of one arm, as in a record's JSON: `arm`, `seed`, `samples_to_target` (None if missed), and more."""


@dataclass(frozen=True)
class Difference:
    """Samples of one arm minus those of another with the same seed: mean and 95 % interval."""

    arm: str
    against: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """An arm against its reference arm, over the seeds with which both reached the target."""

    difference: Difference
    reference: float
    """Mean samples to target of the reference arm."""
    seeds: int
    missed: int
    """Seeds with which one of the two missed the target."""
    p: float
    """Probability of such a difference between equal arms, by the paired t-test."""

    @property
    def shares(self) -> tuple[float, float, float]:
        """Return the difference's mean, low and high end as shares of the reference."""
        apart = self.difference
        return apart.mean / self.reference, apart.low / self.reference, apart.high / self.reference

    @property
    def half_width(self) -> float:
        """Return half the interval's width as a share of the reference."""
        _, low, high = self.shares
        return (high - low) / 2

    def verdict(self, corrected: float) -> str:
        """Return what the seeds show, by the p-value corrected for all tests of the study."""
        if self.missed:
            return f"not decided: {self.missed} of {self.seeds + self.missed} seeds missed the target"
        if corrected > 1 - _CONFIDENCE:
            return "no difference shown"
        return "more samples" if self.difference.mean > 0 else "fewer samples"


def compare(rows: Sequence[Row], arm: str, against: str, measure: str = SAMPLES) -> Comparison | None:
    """Return the difference of two arms; None for fewer than 2 seeds with which both reached the target."""
    ours, theirs = samples_of(rows, arm, measure), samples_of(rows, against, measure)
    seeds = sorted(ours.keys() & theirs.keys())
    apart = [ours[seed] - theirs[seed] for seed in seeds]
    if (half := half_interval(apart)) is None:
        return None
    mean, deviation = statistics.mean(apart), statistics.stdev(apart)
    statistic = abs(mean) / deviation * math.sqrt(len(seeds)) if deviation else math.inf if mean else 0.0
    return Comparison(
        Difference(arm, against, mean, mean - half, mean + half),
        statistics.mean(theirs[seed] for seed in seeds),
        len(seeds),
        len({row["seed"] for row in rows if row["arm"] in (arm, against)}) - len(seeds),
        float(2 * stats.t.sf(statistic, len(seeds) - 1)),
    )


def samples_of(rows: Sequence[Row], arm: str, measure: str = SAMPLES) -> dict[int, float]:
    """Return an arm's samples to target by seed, where it was reached."""
    return {row["seed"]: row[measure] for row in rows if row["arm"] == arm and row[measure] is not None}


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the width of a mean's 95 % interval, by Student's t; None for fewer than 2 values."""
    if len(values) < 2:
        return None
    quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)
    return float(quantile * statistics.stdev(values) / len(values) ** 0.5)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of a study's tests, corrected for their number (Holm 1979)."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def geometric_mean(ratios: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the geometric mean of ratios and its 95 % interval; None where there are too few."""
    if not ratios:
        return None, None, None
    logs = [math.log(ratio) for ratio in ratios]
    mean, half = statistics.mean(logs), half_interval(logs)
    ends = (None, None) if half is None else (math.exp(mean - half), math.exp(mean + half))
    return math.exp(mean), *ends
