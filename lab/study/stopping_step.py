"""Find one stopping step for all seeds of an arm: where the mean of their accuracies crosses the target.

If every seed stopped at its own crossing, each run's luckiest evaluation would count. So the mean includes seeds that
never reach the target. Intervals are by bootstrap over the seeds, the same seeds for both arms of a pair.

Shapes: N seeds, E evaluations, the first before the first step, B resamples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.study.intervals import in_words

_RESAMPLES = 4000
_SEED = 1
_TAILS = (2.5, 97.5)

Curves = NDArray[np.float64]
"""Accuracies of the seeds of an arm [N, E]."""


@dataclass(frozen=True)
class Crossing:
    """Evaluations, with a fraction, until the mean crosses the target; None beyond the end of the runs."""

    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Ratio:
    """One arm's crossing over another's, with the ends of its 95 % interval; None where a run ended before it."""

    mean: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """Return the verdict in words: only an interval without 1 shows a difference."""
        return in_words(self.low, self.high, 1)


def crossings(curves_NE: Curves, target: float) -> NDArray[np.float64]:
    """Return for each curve where it first reaches the target, by a straight line from the evaluation before.

    0 where the first evaluation is there already, infinity where none is.
    """
    reached_NE = curves_NE >= target
    at_N = reached_NE.argmax(1)
    rows_N = np.arange(len(curves_NE))
    after_N, before_N = curves_NE[rows_N, at_N], curves_NE[rows_N, np.maximum(at_N - 1, 0)]
    with np.errstate(divide="ignore", invalid="ignore"):
        found_N = np.where(at_N == 0, 0.0, at_N - 1 + (target - before_N) / (after_N - before_N))
    return np.where(reached_NE.any(1), found_N, np.inf)


def stopping_step(curves_NE: Curves, target: float) -> Crossing:
    """Return where the mean of the seeds crosses the target, with its 95 % interval."""
    mean = crossings(curves_NE.mean(0, keepdims=True), target)[0]
    low, high = _interval(_resampled(curves_NE, target))
    return Crossing(_finite(mean), low, high)


def ratio(curves_NE: Curves, against_NE: Curves, target: float) -> Ratio | None:
    """Return an arm's crossing over another's, whose seeds are the same in the same order; None if one has none.

    Raises ValueError if their seeds are not equally many.
    """
    if len(curves_NE) != len(against_NE):
        raise ValueError(f"{len(curves_NE)} seeds against {len(against_NE)}: expected the same")
    ours, theirs = (crossings(curves.mean(0, keepdims=True), target)[0] for curves in (curves_NE, against_NE))
    if not (np.isfinite(ours) and np.isfinite(theirs) and theirs):
        return None
    ours_B, theirs_B = _resampled(curves_NE, target), _resampled(against_NE, target)
    with np.errstate(invalid="ignore"):
        ratios_B = np.where(np.isinf(ours_B), np.inf, ours_B / theirs_B)  # both beyond the end: unknown, so the worst
    return Ratio(float(ours / theirs), *_interval(ratios_B))


def _resampled(curves_NE: Curves, target: float) -> NDArray[np.float64]:
    """Return crossings of the means of seeds drawn with replacement: [B], the same draws for as many seeds."""
    seeds = len(curves_NE)
    weights_BN = np.random.default_rng(_SEED).multinomial(seeds, [1 / seeds] * seeds, _RESAMPLES) / seeds
    return crossings(weights_BN @ curves_NE, target)


def _interval(values_B: NDArray[np.float64]) -> tuple[float | None, float | None]:
    low, high = np.percentile(values_B, _TAILS, method="nearest")
    return _finite(low), _finite(high)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
