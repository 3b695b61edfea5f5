"""Muon's step compared with torch.optim.Muon, and its treatment of packed, zero and skipped gradients."""

import copy

import pytest
import torch
from torch import Tensor, nn

from bertbench.config.optimizer import MuonSettings
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.model.loops import unused
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.muon import Muon, orthogonalize
from tests.optim.drawn import draw_gradients, matrices, muon

SHAPES = ((7, 13), (13, 7), (11, 11), (7, 13))


def optimizer_of(
    parameters: list[nn.Parameter],
    fused: dict[Tensor, int] | None = None,
    options: MuonSettings = MuonSettings(),  # noqa: B008 - immutable
    decay: float = 0.0,
    product: torch.dtype = torch.float32,
) -> Muon:
    settings = muon(weight_decay=decay, muon=options)
    tensors = LogicalTensors(parameters, fused or {})
    return Muon(tensors, MultiTensorAdam([], settings), settings, product, torch.device("cpu"))


@unused()
def test_steps_equal_torchs_muon() -> None:
    ours = matrices(*SHAPES)
    theirs = copy.deepcopy(ours)
    optimizer = optimizer_of(ours, None, MuonSettings(momentum=0.9, ns_steps=4), 0.1, torch.bfloat16)
    reference = torch.optim.Muon(
        theirs, lr=0.02, weight_decay=0.1, momentum=0.9, nesterov=True, ns_steps=4, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(3):
        for parameters in (ours, theirs):
            draw_gradients(parameters, step)
        optimizer.step(0.02)
        reference.step()
    # both compute in bf16, whose products round in another order: 2^-8 of an update of 0.2 * 0.02 * sqrt(13)
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=0)


@pytest.mark.parametrize(("product", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_a_direction_keeps_its_singular_vectors_and_loses_its_scale(product: torch.dtype, near: float) -> None:
    matrix = matrices((67, 37))[0].detach()
    left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    (found,) = orthogonalize(matrix[None], 5, product)
    singular = torch.diag(left.mT @ found.double() @ right.mT)
    assert singular.min() > 0.6 and singular.max() < 1.3  # the quintic's band, not 1
    torch.testing.assert_close(found.double(), left @ torch.diag(singular) @ right, atol=near, rtol=0)


def test_a_zero_gradient_leaves_the_decay_alone() -> None:
    ours = matrices((4, 3))
    before = ours[0].detach().clone()
    ours[0].grad = torch.zeros(4, 3)
    optimizer_of(ours, decay=0.5).step(0.1)
    torch.testing.assert_close(ours[0].detach(), before * 0.95)


def test_a_skipped_step_leaves_no_trace() -> None:
    straight = matrices(*SHAPES)
    skipping = copy.deepcopy(straight)
    one, zero = torch.ones(()), torch.zeros(())
    for parameters, skips in ((straight, False), (skipping, True)):
        optimizer = optimizer_of(parameters, decay=0.1)
        for step in range(3):
            if skips and step == 1:
                for parameter in parameters:
                    parameter.grad = torch.full_like(parameter, torch.inf)
                optimizer.step(torch.tensor(0.1), zero, zero)
            draw_gradients(parameters, step)
            optimizer.step(torch.tensor(0.1), one, one)
    torch.testing.assert_close(skipping, straight, atol=0, rtol=0)


def test_the_coefficient_scales_the_gradient() -> None:
    # what clipping multiplies; from the second step on the share of a gradient in the momentum shows it
    clipped = matrices(*SHAPES)
    scaled = copy.deepcopy(clipped)
    for parameters, scale, coefficient in ((clipped, 1.0, torch.tensor(0.25)), (scaled, 0.25, None)):
        optimizer = optimizer_of(parameters)
        draw_gradients(parameters, 0)
        optimizer.step(0.1)
        draw_gradients(parameters, 1, scale)
        optimizer.step(0.1, coefficient)
    torch.testing.assert_close(clipped, scaled, atol=0, rtol=0)
