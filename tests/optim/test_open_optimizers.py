"""NAdamW beside other programs' steps."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bertbench.optim import blocks
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.nadamw import nadamw_step
from bertbench.optim.options import AdamOptions
from bertbench.optim.state import Optimizer, State
from tests.optim.drawn import draw_gradients, matrices

SHAPES = ((7, 13), (13, 7), (11, 11), (7, 13))


def assert_steps_alike(
    ours: list[nn.Parameter], optimizer: Optimizer, theirs: list[nn.Parameter], step: Callable[[float], object]
) -> None:
    """Take 12 steps of a rate that changes; fp32 rounds in another order, some 1e-6 of a weight."""
    for number in range(12):
        rate = 0.01 * (1 + number % 3)
        for parameters in (ours, theirs):
            draw_gradients(parameters, number)
        optimizer.step(rate)
        step(rate)
    for parameter, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(parameter, expected, atol=2e-5, rtol=1e-5)


def with_rate(reference: torch.optim.Optimizer) -> Callable[[float], object]:
    def step(rate: float) -> None:
        reference.param_groups[0]["lr"] = rate
        reference.step()

    return step


@pytest.mark.parametrize("block", [17, 100])  # two blocks a tensor and more, or at most two tensors a block
def test_a_step_in_blocks_is_the_step(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_PER_THREAD", block)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    sizes = []

    def counted(state: State, *rest: Any) -> None:
        sizes.append(sum(len(part) for part in state.weights))
        nadamw_step(state, *rest)

    at_once = matrices(*SHAPES)
    in_parts = copy.deepcopy(at_once)
    for parameters, step in ((at_once, nadamw_step), (in_parts, blocks.in_blocks(counted))):
        optimizer = MultiTensorAdam(parameters, AdamOptions(), False, None, step)
        for number in range(3):
            draw_gradients(parameters, number)
            optimizer.step(0.1)
    assert all(torch.equal(own, expected) for own, expected in zip(in_parts, at_once, strict=True))
    assert max(sizes) <= 2 * block
    assert sum(sizes) == 3 * sum(parameter.numel() for parameter in at_once)


def test_nadamw_equals_torchs_nadam_whose_momentum_stays() -> None:
    ours = matrices(*SHAPES)
    theirs = copy.deepcopy(ours)
    # torch's momentum is beta1 (1 - 0.5 * 0.96^(t psi)): with a psi this large, beta1
    reference = torch.optim.NAdam(
        theirs, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, momentum_decay=1e6, decoupled_weight_decay=True
    )
    optimizer = MultiTensorAdam(ours, AdamOptions(0.8, 0.95, 1e-6, 0.1), False, None, nadamw_step)
    assert_steps_alike(ours, optimizer, theirs, with_rate(reference))


def test_nadamw_skips_a_step_without_a_trace() -> None:
    straight = matrices(*SHAPES)
    skipping = copy.deepcopy(straight)
    one, zero = torch.ones(()), torch.zeros(())
    for parameters in (straight, skipping):
        optimizer = MultiTensorAdam(parameters, AdamOptions(), False, None, nadamw_step)
        for number in range(3):
            if parameters is skipping and number == 1:
                for parameter in parameters:
                    parameter.grad = torch.full_like(parameter, torch.inf)
                optimizer.step(torch.tensor(0.1), zero, zero)
            draw_gradients(parameters, number)
            optimizer.step(torch.tensor(0.1), one, one)
    assert all(torch.equal(own, expected) for own, expected in zip(skipping, straight, strict=True))
