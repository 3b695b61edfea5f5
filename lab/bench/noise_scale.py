"""Estimate the gradient noise scale: the batch size at which the noise in a step is as large as the gradient.

    noise scale = tr(S) / |G|^2          G: mean gradient, S: covariance of a single sample's gradient
    efficiency(M) = (noise scale + M0) / (noise scale + M)          of a sample in batch M, relative to batch M0

Sources: McCandlish et al. 2018, arXiv 1812.06162, section 2.2; Qiao et al. 2021 (Pollux), equation 7.
Shapes: N gradients of batches of equal size, P parameters.
"""

import math
from typing import NamedTuple

import torch
from scipy import stats
from torch import Tensor

from bertbench.common.intervals import CONFIDENCE


class NoiseScale(NamedTuple):
    """An estimate of the noise scale in samples, with its 95 % interval."""

    samples: float
    """Infinite if there are too few gradients to distinguish the mean gradient from 0."""
    low: float
    high: float

    def efficiency(self, batch: int, baseline: int) -> float:
        """Return the statistical efficiency of a sample in a batch, relative to the baseline's batch."""
        if math.isinf(self.samples):
            return 1.0
        return (self.samples + baseline) / (self.samples + batch)


def noise_scale(gradients_NP: Tensor, batch: int) -> NoiseScale:
    """Estimate the noise scale from the mean gradients of N >= 3 independent batches of `batch` samples.

    The estimates of numerator and denominator are unbiased; the interval is by the jackknife.
    """
    products_NN = gradients_NP.double() @ gradients_NP.double().T
    count = len(products_NN)
    squares_N = products_NN.diagonal()
    square_of_sum = products_NN.sum()
    ratio = _ratio(square_of_sum, squares_N.sum(), count, batch)
    # without gradient i, the sum's square loses twice the product of i and the sum, and gains the square of i
    squares_of_sums_N = square_of_sum - 2 * products_NN.sum(dim=1) + squares_N
    left_out_N = _ratio(squares_of_sums_N, squares_N.sum() - squares_N, count - 1, batch)
    if not (torch.isfinite(left_out_N).all() and torch.isfinite(ratio)):
        return NoiseScale(math.inf, 0.0, math.inf)
    variance = (count - 1) / count * (left_out_N - left_out_N.mean()).square().sum()
    half = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * variance.sqrt().item()
    value = ratio.item()
    return NoiseScale(value, max(0.0, value - half), value + half)


def _ratio(square_of_sum: Tensor, sum_of_squares: Tensor, count: int, batch: int) -> Tensor:
    """Return tr(S) / |G|^2 for `count` gradients; infinite if the estimate of |G|^2 isn't positive."""
    square_of_mean = (square_of_sum - sum_of_squares) / (count * (count - 1))
    variance_of_one = (sum_of_squares - square_of_sum / count) / (count - 1)
    ratio = batch * variance_of_one / square_of_mean
    return torch.where(square_of_mean > 0, ratio, torch.inf)
