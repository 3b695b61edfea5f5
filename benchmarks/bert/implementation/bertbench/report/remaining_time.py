"""When will this run reach its target: by the runs of the same system that did, or else by its own curve.

Earlier runs say it best: a curve may lie on a plateau for most of its length, where its slope says nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Forecast:
    """Training samples to the target: the likeliest, and the range; and what says so."""

    samples: float
    low: float
    high: float
    basis: str


def forecast(curve: Sequence[tuple[float, float]], target: float, earlier: Sequence[float]) -> Forecast | None:
    """Return when accuracy reaches `target`; `curve` is (samples, accuracy), `earlier` what other runs took.

    Those of `earlier` that this run has passed without success say nothing. Return None where nothing says it yet.
    """
    so_far = curve[-1][0] if curve else 0.0
    if ahead := [samples for samples in earlier if samples > so_far]:
        return Forecast(median(ahead), min(ahead), max(ahead), "earlier runs of this system")
    if len(curve) < 2:
        return None
    (before, lower), (samples, accuracy) = curve[-2:]
    if accuracy <= lower:
        return None
    straight_on = samples + max(0.0, target - accuracy) * (samples - before) / (accuracy - lower)
    return Forecast(straight_on, straight_on, straight_on, "the slope of its last evaluations")
