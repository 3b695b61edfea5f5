"""apex's FusedLAMB behind our interface: the same formulas, and a state that snapshots can store."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.apex import ApexLamb
from bertbench.optim.interface import Optimizer
from tests.optim.apex_like import apex_installed
from tests.optim.drawn import draw_gradients, lamb, matrices

SHAPES = ((12, 5), (12,), (7, 3), (7,))
"""A fused query-key-value matrix and its bias, another matrix and its bias."""
NAMES = ("qkv", "qkv_bias", "dense", "bias")


@pytest.fixture(autouse=True)
def _apex() -> Iterator[None]:
    with apex_installed():
        yield


def fused(parameters: list[nn.Parameter]) -> dict[Tensor, int]:
    return dict.fromkeys(parameters[:2], 3)


def by_apex(parameters: list[nn.Parameter]) -> ApexLamb:
    return ApexLamb(parameters, lamb(weight_decay=0.1), fused(parameters))


def names(parameters: list[nn.Parameter]) -> dict[Tensor, str]:
    return dict(zip(parameters, NAMES, strict=True))


def take(optimizer: Optimizer, parameters: list[nn.Parameter], steps: range) -> None:
    for step in steps:
        draw_gradients(parameters, step)
        optimizer.step(0.01, torch.tensor(0.5))


def test_steps_and_moments_equal_our_own_lambs() -> None:
    ours, theirs = matrices(*SHAPES), matrices(*SHAPES)
    own = MultiTensorAdam(ours, lamb(weight_decay=0.1), fused(ours))
    apex = by_apex(theirs)
    for optimizer, parameters in ((own, ours), (apex, theirs)):
        take(optimizer, parameters, range(3))
    torch.testing.assert_close(theirs, ours)
    torch.testing.assert_close(apex.moments(names(theirs)), own.moments(names(ours)))
    assert apex.moments(names(theirs)).keys() >= {"qkv.0.first", "qkv_bias.2.second", "dense.first", "bias.second"}


def test_a_step_after_a_restored_state_is_the_step_that_would_have_come() -> None:
    interrupted = matrices(*SHAPES)
    before = by_apex(interrupted)
    take(before, interrupted, range(3))
    resumed = [nn.Parameter(parameter.detach().clone()) for parameter in interrupted]
    after = by_apex(resumed)
    take(after, resumed, range(7, 9))  # a warm-up, whose steps are forgotten
    for parameter, weight in zip(resumed, interrupted, strict=True):
        parameter.data.copy_(weight)
    after.reset()
    for moment_name, moment in after.moments(names(resumed)).items():
        moment.copy_(before.moments(names(interrupted))[moment_name])
    after.resume(3)
    take(before, interrupted, range(3, 5))
    take(after, resumed, range(3, 5))
    torch.testing.assert_close(resumed, interrupted, atol=0, rtol=0)
