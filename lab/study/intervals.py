"""Compare arms by their samples to target: means and paired differences with 95 % intervals.

A seed fixes initial weights and the order of the data, so pairing by seed cancels much of the noise.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import special

_CONFIDENCE = 0.95
SAMPLES, SECONDS = "samples_to_target", "seconds_to_target"
RATIOS = ("ratio", "ratio_low", "ratio_high")

Comparison = dict[str, Any]
"""An arm and its reference arm in one measure, as `compare` describes it."""
Row = Mapping[str, Any]
"""One seed of one arm, as in a record's JSON: `arm`, `seed`, `samples_to_target` (None if missed), and more."""
Rows = Sequence[Row]


def compare(rows: Rows, arm: str, against: str, measure: str = SAMPLES) -> Comparison | None:
    """Return an arm against its reference arm; None for fewer than 2 seeds with which both reached the target.

    `difference` is the arm's samples less the reference's with the same seed, mean and 95 % interval; `ratio` is the
    same over `reference`, the reference's mean, plus 1. `missed` counts the seeds with which one of the two missed the
    target. `p` is the probability of such a difference between equal arms, by the paired t-test.
    """
    ours, theirs = samples_of(rows, arm, measure), samples_of(rows, against, measure)
    seeds = sorted(ours.keys() & theirs.keys())
    apart = [ours[seed] - theirs[seed] for seed in seeds]
    if (half := half_interval(apart)) is None:
        return None
    mean, deviation = statistics.mean(apart), statistics.stdev(apart)
    statistic = abs(mean) / deviation * math.sqrt(len(seeds)) if deviation else math.inf if mean else 0.0
    reference, low, high = statistics.mean(theirs[seed] for seed in seeds), mean - half, mean + half
    return {
        "difference": {"arm": arm, "against": against, "mean": mean, "low": low, "high": high},
        "reference": reference,
        "seeds": len(seeds),
        "missed": len({row["seed"] for row in rows if row["arm"] in (arm, against)}) - len(seeds),
        "p": float(2 * special.stdtr(len(seeds) - 1, -statistic)),
        **dict(zip(RATIOS, (1 + end / reference for end in (mean, low, high)), strict=True)),
    }


def verdict(pair: Comparison, corrected: float) -> str:
    """Return what the seeds show, by the p-value corrected for all tests of the study."""
    if pair["missed"]:
        return f"not decided: {pair['missed']} of {pair['seeds'] + pair['missed']} seeds missed the target"
    if corrected > 1 - _CONFIDENCE:
        return "no difference shown"
    return "more samples" if pair["difference"]["mean"] > 0 else "fewer samples"


def samples_of(rows: Rows, arm: str, measure: str) -> dict[int, float]:
    """Return an arm's samples to target by seed, where it was reached."""
    return {row["seed"]: row[measure] for row in rows if row["arm"] == arm and row[measure] is not None}


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the width of a mean's 95 % interval, by Student's t; None for fewer than 2 values."""
    if len(values) < 2:
        return None
    quantile = special.stdtrit(len(values) - 1, (1 + _CONFIDENCE) / 2)
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
