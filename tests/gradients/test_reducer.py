"""The reducer compared with torch's DDP and a hook that does the same, on two gloo ranks."""

from typing import Any

import torch
from torch import nn

from bertbench.config.optimizer import ClipMode
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets
from tests.gradients.reducing import BUCKET_MB, loss_of, reducer_of, small_model
from tests.ranks import run_ranks
from tests.watching import noting

MODES: tuple[ClipMode, ...] = ("none", "after", "before", "bucket")


COPIES = ("aten::copy_", "aten::_foreach_copy_")
"""Launches that copy one tensor, and several."""


def by_ddp(world: World) -> list[float]:
    """Gradients of the third of three steps of two parts, summed by torch's DDP, which builds its buckets in the first.

    DDP sums to a mean.
    """
    model = small_model()
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=BUCKET_MB)
    for _ in range(3):
        parallel.zero_grad(set_to_none=True)
        with parallel.no_sync():
            loss_of(parallel, world.rank, 0).backward()
        loss_of(parallel, world.rank, 1).backward()
    return [world.size * x for x in gradients_of(model)]


def gradients_of(model: nn.Module) -> list[float]:
    return torch.cat([one.grad.view(-1) for one in model.parameters() if one.grad is not None]).tolist()


def train(world: World, mode: ClipMode, drops: bool) -> tuple[list[float], float, list[int]]:
    """Gradients of the third of three steps of two parts, the share that was clipped, and what was copied meanwhile."""
    model = small_model()
    reducer = reducer_of(model, world.size, BUCKET_MB, mode=mode, in_place=not drops)
    for _ in range(3):
        reducer.drop()
        with reducer.accumulating(last=False):
            loss_of(model, world.rank, 0).backward()
        launched = list[str]()
        with noting(launched), reducer.accumulating(last=True):
            loss_of(model, world.rank, 1).backward()
            reduced = reducer.finish()
    return gradients_of(model), reduced.clipped.item(), [launched.count(name) for name in COPIES]


def all_ways(world: World) -> tuple[list[float], dict[str, Any]]:
    return by_ddp(world), {f"{mode} {drops}": train(world, mode, drops) for mode in MODES for drops in (True, False)}


def test_gradients_equal_ddps_bit_for_bit_with_accumulation_and_move_in_one_launch_per_bucket() -> None:
    (by_ddp, first), (_, second) = run_ranks(2, all_ways)
    assert first["none True"][0] == by_ddp
    for name, (gradients, share, (single, several)) in first.items():
        assert gradients == second[name][0], "both ranks have the same gradients"
        assert (gradients, share) == first[name.replace("False", "True")][:2], "dropped or zeroed"
        assert len(gradients) == 7 * 11 + 11 + 11 * 5 + 5 + 5 * 3 + 3
        # three layers, three buckets; gradients that are where they belong are not copied
        assert (single, several) == ((0, 3) if name.endswith("True") else (0, 0))


def test_a_bucket_of_a_gpu_or_of_slices_has_gaps_that_stay_zero() -> None:
    weights = [nn.Parameter(torch.ones(7)), nn.Parameter(torch.ones(20))]
    (bucket,) = Buckets([weights], sliced=True, slices=3, place=1).all
    for weight in weights:
        weight.grad = torch.full_like(weight, 5.0)
    bucket.gradients.fill_(9.0)  # what a sum into slices may leave
    bucket.take_in()
    # 7 -> 16, 20 -> 32: 48 elements, in three slices of 16
    assert bucket.gradients.tolist() == [5.0] * 7 + [0.0] * 9 + [5.0] * 20 + [0.0] * 12
