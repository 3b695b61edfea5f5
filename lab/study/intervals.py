"""Compare configurations by their samples to the target: means and paired differences with 95 % intervals.

A seed determines the initial weights and the order of the data, so pairing by seed cancels much of the noise.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bertbench.common.intervals import CONFIDENCE, of_mean, p_value

SAMPLES = "samples_to_target"
SECONDS = "seconds_to_target"
RATIOS = ("ratio", "ratio_low", "ratio_high")

Comparison = dict[str, Any]
"""The result of `compare_configurations`; `arm` is the configuration's name."""
Row = Mapping[str, Any]
"""One run of a configuration with one seed, as in a record's JSON: `arm` (the configuration's name), `seed`,
`samples_to_target` (None if the target was missed), and more."""
Rows = Sequence[Row]


def compare_configurations(rows: Rows, configuration: str, against: str, measure: str = SAMPLES) -> Comparison | None:
    """Compare a configuration with its reference; None if both reached the target with fewer than 2 common seeds.

    `difference` is the configuration's samples minus the reference's with the same seed: mean and 95 % interval.
    `reference` is the reference's mean, and `ratio` is 1 + difference / reference. `missed` counts the seeds with which
    one of the two missed the target. `p` is the probability of such a difference between equal configurations, by the
    paired t-test.
    """
    samples = samples_by_seed(rows, configuration, measure)
    reference_samples = samples_by_seed(rows, against, measure)
    seeds = sorted(samples.keys() & reference_samples.keys())
    differences = [samples[seed] - reference_samples[seed] for seed in seeds]
    if len(differences) < 2:
        return None
    mean, low, high = of_mean(differences)
    assert low is not None
    assert high is not None
    reference = statistics.mean(reference_samples[seed] for seed in seeds)
    all_seeds = {row["seed"] for row in rows if row["arm"] in (configuration, against)}
    return {
        "difference": {"arm": configuration, "against": against, "mean": mean, "low": low, "high": high},
        "reference": reference,
        "seeds": len(seeds),
        "missed": len(all_seeds) - len(seeds),
        "p": p_value(differences),
        "ratio": 1 + mean / reference,
        "ratio_low": 1 + low / reference,
        "ratio_high": 1 + high / reference,
    }


def verdict(pair: Comparison, corrected: float) -> str:
    """Return what the seeds show, given the p-value corrected for all tests of the study."""
    if pair["missed"]:
        return f"not decided: {pair['missed']} of {pair['seeds'] + pair['missed']} seeds missed the target"
    if corrected > 1 - CONFIDENCE:
        return "no difference shown"
    return "more samples" if pair["difference"]["mean"] > 0 else "fewer samples"


def samples_by_seed(rows: Rows, configuration: str, measure: str) -> dict[int, float]:
    """Return a configuration's samples to the target, by seed, for the seeds that reached it."""
    reached = [row for row in rows if row["arm"] == configuration and row[measure] is not None]
    return {row["seed"]: row[measure] for row in reached}
