"""When will this run reach its target: by the runs of the same system that did, or else by its own curve.

Earlier runs say it best: a curve may lie on a plateau for most of its length, where its slope says nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

_RECENT = 4  # evaluations whose slopes are looked at


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
    recent = curve[-_RECENT:]
    slopes = [  # straight on: at the last slope, and at the steepest and the flattest of the recent ones
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in pairwise(recent)
        if later[0] > earlier[0]
    ]
    if not slopes or min(slopes) <= 0:
        return None
    samples, accuracy = recent[-1]
    missing = max(0.0, target - accuracy)
    last, low, high = (samples + missing / slope for slope in (slopes[-1], max(slopes), min(slopes)))
    return Forecast(last, low, high, "the slope of its last evaluations")
