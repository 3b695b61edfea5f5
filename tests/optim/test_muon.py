"""Muon's step compared with torch.optim.Muon, and its treatment of packed, zero and skipped gradients."""

import copy

import pytest
import torch
from torch import Tensor, distributed, nn

from bertbench.config.optimizer import MuonSettings, OptimizerSettings
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.model.loops import unused
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.matrices import DistributedMatrices
from bertbench.optim.muon import Muon, orthogonalize
from tests.optim.drawn import draw_gradients, matrices, muon
from tests.ranks import run_ranks

SHAPES = ((7, 13), (13, 7), (11, 11), (7, 13))


def optimizer_of(
    parameters: list[nn.Parameter],
    fused: dict[Tensor, int] | None = None,
    options: MuonSettings = MuonSettings(),  # noqa: B008 - immutable
    decay: float = 0.0,
    product: torch.dtype = torch.float32,
) -> Muon:
    return muon_on(LogicalTensors(parameters, fused or {}), muon(weight_decay=decay, muon=options), product)


def muon_on(held: LogicalTensors, options: OptimizerSettings, product: torch.dtype = torch.float32) -> Muon:
    return Muon(held, MultiTensorAdam([], options), options, product, torch.device("cpu"))


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


def sliced(world: World) -> tuple[bool, int, list[str]]:
    """Return whether slices take the whole matrices' steps, and the pieces and the momenta that this rank holds."""
    ours, whole = matrices((7, 13), (2, 3)), matrices((7, 13), (2, 3))
    filler = nn.Parameter(torch.zeros(101))
    filler.grad = torch.zeros(101)
    buckets = Buckets([[*ours, filler]], True, world.size, world.rank)
    held = DistributedMatrices(buckets, ours, {})
    optimizer = muon_on(held, muon())
    expected = optimizer_of(whole, decay=0.01)
    for step in range(3):
        draw_gradients(whole, step)
        for mine, theirs in zip(ours, whole, strict=True):
            mine.grad = theirs.grad.clone()
        (bucket,) = buckets.all
        bucket.take_in()
        optimizer.step(0.1)
        expected.step(0.1)
        pieces = buckets.weights[0].chunk(world.size)
        for rank, piece in enumerate(pieces):
            distributed.broadcast(piece, rank)
    same = all(torch.equal(mine, theirs) for mine, theirs in zip(ours, whole, strict=True))
    return same, len(held.weights), list(optimizer.moments({ours[0]: "large", ours[1]: "small"}))


def test_matrices_in_slices_take_the_steps_of_whole_ones_to_the_bit() -> None:
    # 96 + 16 + 112 elements in slices of 80: the first ends in the large matrix, the last holds none of either
    answers = run_ranks(3, sliced)
    assert answers == [(True, 1, ["large.momentum"]), (True, 2, ["small.momentum"]), (True, 0, [])]
