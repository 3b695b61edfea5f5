"""Scales of fp8: their formula, histories of overflow, zero and NaN, and the rounding of both formats."""

import math

import pytest
import torch
from torch import Tensor

from bertbench.model.fp8_scaling import (
    E4M3,
    E5M2,
    HISTORY,
    DelayedScaling,
    LinearScaling,
    observe,
    scales_for,
    to_fp8,
)

CPU = torch.device("cpu")
ROUND_OFF = {E4M3: 2**-4, E5M2: 2**-3}  # half of the last of 3 and of 2 bits behind the point
LEAST_NORMAL = {E4M3: 2**-6, E5M2: 2**-14}


def alone(amaxes: Tensor) -> None:
    """Agree with no other rank."""


def scaled(amaxes: list[float], otherwise: float = 8.0) -> list[float]:
    count = len(amaxes)
    return scales_for(torch.tensor(amaxes), torch.full((count,), 448.0), torch.full((count,), otherwise)).tolist()


def test_a_scale_is_the_largest_power_of_two_that_keeps_the_amax_in_range() -> None:
    # 448 = 1.75 x 2^8: an amax of 1.75 takes 2^8 exactly, the next larger number only 2^7
    above = math.nextafter(1.75, 2) + 2**-22
    assert scaled([1.75, above, 448.0, 449.0, 3.5e6]) == [256.0, 128.0, 1.0, 0.5, 2**-13]


def test_an_amax_of_zero_keeps_the_scale_and_a_tiny_one_gets_a_scale_that_can_be_inverted() -> None:
    # the least magnitude that isn't denormal: code compiled with fast arithmetic makes its process take those as 0
    zero, tiny = scaled([0.0, torch.finfo(torch.float32).tiny])
    assert (zero, tiny) == (8.0, 2.0**126)
    assert torch.tensor(tiny).reciprocal() == 2.0**-126


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_a_cast_rounds_by_the_format_s_unit_round_off_and_saturates(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    generator = torch.Generator().manual_seed(1)
    magnitudes = torch.exp2(torch.rand(5_000, generator=generator) * 40 - 24)
    values = magnitudes * torch.randint(0, 2, (5_000,), generator=generator).mul(2).sub(1)
    found = to_fp8(values, torch.tensor(1.0), dtype).double()
    inside = values.abs() <= largest
    # below the least normal number steps are even, as wide as that number's
    allowed = ROUND_OFF[dtype] * values.double().abs().clamp(min=LEAST_NORMAL[dtype])
    assert ((found - values).abs() <= allowed)[inside].all()
    assert torch.equal(found[~inside], values[~inside].sign().double() * largest)
    assert (~inside).any() and (values.abs() < LEAST_NORMAL[dtype]).any()
    # and the bound is tight: some number comes near it
    assert ((found - values).abs() / allowed)[inside].max() > 0.95


def test_a_cast_keeps_nan_and_makes_infinity_the_largest_number() -> None:
    found = to_fp8(torch.tensor([math.nan, math.inf, -math.inf]), torch.tensor(2.0), E4M3).float()
    assert found[0].isnan()
    assert found[1:].tolist() == [448.0, -448.0]


def stepped(scaling: DelayedScaling, *steps: float) -> list[float]:
    """The scale of the first layer's input after each of these steps' amaxes."""
    scales = []
    for amax in steps:
        observe(scaling.layers[0].input, torch.tensor([[0.0, -amax]]))
        scaling.advance(alone)
        scales.append(scaling.layers[0].input.scale.item())
    return scales


def test_a_scale_follows_a_growing_amax_at_once_and_a_falling_one_after_the_history() -> None:
    scaling = DelayedScaling(1, CPU)
    assert stepped(scaling, 1.75, 7.0) == [256.0, 64.0]
    assert stepped(scaling, *[1.75] * HISTORY) == [64.0] * (HISTORY - 1) + [256.0]


@pytest.mark.parametrize("amax", [math.nan, math.inf])
def test_a_step_that_overflowed_leaves_the_scale_to_the_others(amax: float) -> None:
    scaling = DelayedScaling(1, CPU)
    assert stepped(scaling, 1.75, amax, 0.875) == [256.0, 256.0, 256.0]
    assert stepped(scaling, *[amax] * HISTORY) == [256.0] * (HISTORY - 3) + [512.0] * 3
    assert stepped(scaling, 3.5) == [128.0]  # and recovers


def test_a_history_of_zeros_keeps_the_scale() -> None:
    scaling = DelayedScaling(1, CPU)
    assert stepped(scaling, 0.0) == [1.0]
    assert stepped(scaling, 1.75, *[0.0] * (HISTORY + 1)) == [256.0] * (HISTORY + 2)


def test_a_step_s_amax_covers_all_that_it_saw_and_is_forgotten_afterwards() -> None:
    scaling = DelayedScaling(2, CPU)
    _, second = scaling.layers
    observe(second.gradient, torch.tensor([[1.0, -5.0], [2.0, 0.5]]))
    observe(second.gradient, torch.tensor([[3.0]]))
    assert second.gradient.amax == 5.0
    scaling.advance(alone)
    assert second.gradient.amax == 0.0
    # 57,344 = 1.75 x 2^15, over 5 it is 1.4 x 2^13
    assert (second.gradient.scale.item(), second.gradient.inverse.item()) == (2.0**13, 2.0**-13)
    assert scaling.layers[0].gradient.scale == 1.0


def test_ranks_take_the_largest_amax_without_those_that_overflowed() -> None:
    scaling = DelayedScaling(1, CPU)
    observe(scaling.layers[0].input, torch.tensor([[math.inf]]))
    seen = []

    def other_rank(amax_K: Tensor) -> None:
        seen.append(amax_K.tolist())
        amax_K[0] = 3.5

    scaling.advance(other_rank)
    assert seen == [[0.0, 0.0, 0.0]]
    assert scaling.layers[0].input.scale == 128.0


def test_reset_returns_to_the_start_and_a_copied_state_continues_equally() -> None:
    scaling, other = DelayedScaling(1, CPU), DelayedScaling(1, CPU)
    observe(scaling.layers[0].weight, torch.tensor([[1.75]]))
    scaling.start(alone)
    at_start = {name: tensor.clone() for name, tensor in scaling.state().items()}
    stepped(scaling, 7.0, 0.5)
    observe(scaling.layers[0].input, torch.tensor([[9.0]]))
    scaling.reset()
    assert all(torch.equal(tensor, at_start[name]) for name, tensor in scaling.state().items())
    assert (scaling.layers[0].weight.scale.item(), scaling.layers[0].input.amax.item()) == (256.0, 0.0)

    stepped(scaling, 7.0)
    for name, tensor in other.state().items():
        tensor.copy_(scaling.state()[name])
    other.publish()
    for ours, theirs in zip(scaling.layers[0].tensors(), other.layers[0].tensors(), strict=True):
        assert torch.equal(ours, theirs)
    assert stepped(scaling, *[0.5] * HISTORY) == stepped(other, *[0.5] * HISTORY)


def test_a_scaling_can_be_taken_apart_and_put_together() -> None:
    layer = DelayedScaling(1, CPU).layers[0]
    assert LinearScaling.of(layer.tensors()) == layer
