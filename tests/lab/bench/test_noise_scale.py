"""The noise scale of a quadratic whose noise is known, and worked out by hand."""

import math

import pytest
import torch

from lab.bench.noise_scale import NoiseScale, noise_scale


def test_the_estimate_of_three_gradients_is_worked_out_by_hand() -> None:
    gradients = torch.tensor([[3.0, 1.0], [3.0, -1.0], [6.0, 0.0]])
    # sum (12, 0): 144; squares 10 + 10 + 36 = 56; |G|^2 = (144 - 56) / 6; variance = (56 - 144 / 3) / 2 = 4
    assert noise_scale(gradients, batch=11).samples == pytest.approx(11 * 4 / (88 / 6))


def test_the_interval_holds_the_noise_scale_of_a_quadratic() -> None:
    # loss |w - x|^2 / 2 with x normal, of standard deviation 2 in 50 dimensions: at |w| = 5, S = 4 I, |G|^2 = 25
    expected = 50 * 4 / 25
    generator = torch.Generator().manual_seed(1)
    weights = torch.full((50,), 5 / math.sqrt(50))
    holds = 0
    for _ in range(200):
        samples = 2 * torch.randn(24, 7, 50, generator=generator)
        estimate = noise_scale((weights - samples).mean(dim=1), batch=7)
        holds += estimate.low <= expected <= estimate.high
    assert holds >= 0.88 * 200  # of 95 %: a jackknife's interval of a ratio is a little short


def test_a_gradient_that_is_all_noise_has_no_scale_and_wastes_no_sample() -> None:
    gradients = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    estimate = noise_scale(gradients, batch=5)
    assert estimate.samples == math.inf
    assert estimate.efficiency(64, 16) == 1.0


def test_efficiency_falls_as_the_batch_passes_the_noise_scale() -> None:
    assert NoiseScale(48.0, 40.0, 56.0).efficiency(16, 16) == 1.0
    assert NoiseScale(48.0, 40.0, 56.0).efficiency(80, 16) == pytest.approx(0.5)
