"""Compare arms by their samples to target: means and paired differences with 95 % intervals.

A seed fixes initial weights and the order of the data, so pairing by seed cancels much of the noise.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

_CONFIDENCE = 0.95

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

    @property
    def verdict(self) -> str:
        """Return the verdict in words: only an interval without 0 shows a difference."""
        return in_words(self.low, self.high, 0)


@dataclass(frozen=True)
class Comparison:
    """An arm against its reference arm, over the seeds with which both reached the target."""

    difference: Difference
    reference: float
    """Mean samples to target of the reference arm."""
    seeds: int

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


def compare(rows: Sequence[Row], arm: str, against: str) -> Comparison | None:
    """Return the difference of two arms; None for fewer than 2 seeds with which both reached the target."""
    ours, theirs = samples_of(rows, arm), samples_of(rows, against)
    seeds = sorted(ours.keys() & theirs.keys())
    apart = [ours[seed] - theirs[seed] for seed in seeds]
    if (half := half_interval(apart)) is None:
        return None
    mean = statistics.mean(apart)
    difference = Difference(arm, against, mean, mean - half, mean + half)
    return Comparison(difference, statistics.mean(theirs[seed] for seed in seeds), len(seeds))


def samples_of(rows: Sequence[Row], arm: str) -> dict[int, float]:
    """Return an arm's samples to target by seed, where it was reached."""
    return {
        row["seed"]: row["samples_to_target"]
        for row in rows
        if row["arm"] == arm and row["samples_to_target"] is not None
    }


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the width of a mean's 95 % interval, by Student's t; None for fewer than 2 values."""
    if len(values) < 2:
        return None
    quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)
    return float(quantile * statistics.stdev(values) / len(values) ** 0.5)


def in_words(low: float | None, high: float | None, equal: float) -> str:
    """Return what an interval of samples shows: a difference only if it excludes `equal`; None is an open end."""
    if low is not None and low > equal:
        return "more samples"
    return "fewer samples" if high is not None and high < equal else "no difference shown"
