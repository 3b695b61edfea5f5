"""Flat buckets filled in one launch each, beside DDP on two gloo ranks."""

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bertbench.distributed.world import World
from bertbench.optim.bucket_parallel import flat_buckets
from bertbench.optim.clip import gradient_norm
from bertbench.optim.comm_hook import Reducer
from bertbench.optim.communication import bucket_sum
from bertbench.optim.options import ClipMode, ReduceOptions
from tests.ranks import run_ranks

BUCKET_MB = 60 / 2**20  # 60 bytes: a bucket a layer
MODES: tuple[ClipMode, ...] = ("none", "after", "before", "bucket")


def small_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 5), nn.Tanh(), nn.Linear(5, 3))


def loss_of(model: Any, rank: int, part: int) -> torch.Tensor:
    inputs = torch.randn(13, 7, generator=torch.Generator().manual_seed(100 * rank + part))
    loss: torch.Tensor = model(inputs).square().sum() / (13 * 3**rank)
    return loss


class Copies(TorchDispatchMode):
    """Counts launches that copy."""

    def __init__(self) -> None:
        super().__init__()
        self.single = self.several = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        name = function.overloadpacket.__name__
        self.single += name == "copy_"
        self.several += name == "_foreach_copy_"
        return function(*arguments, **(named or {}))


def train(world: World, mode: ClipMode, flat: bool, set_to_none: bool) -> tuple[list[float], float | None, list[int]]:
    """Gradients of the third of three steps of two parts, the share that was clipped, and what was copied meanwhile."""
    model = small_model(3 + world.rank)  # all become rank 0's
    reducer = Reducer(mode, 1.0, world.size, bucket_sum(ReduceOptions(), 1), None)
    parallel = (reducer.attach_buckets if flat else reducer.attach)(model, BUCKET_MB)
    for _ in range(3):
        parallel.zero_grad(set_to_none=set_to_none)
        with parallel.no_sync():
            loss_of(parallel, world.rank, 0).backward()
        with Copies() as copies:
            loss_of(parallel, world.rank, 1).backward()
            share = reducer.finish()
    gradients = torch.cat([one.grad.view(-1) for one in model.parameters() if one.grad is not None])
    return gradients.tolist(), None if share is None else share.item(), [copies.single, copies.several]


def both_ways(world: World) -> dict[str, list[Any]]:
    return {
        f"{mode} {set_to_none}": [train(world, mode, flat, set_to_none) for flat in (False, True)]
        for mode in MODES
        for set_to_none in (True, False)
    }


def test_gradients_are_ddp_s_in_every_clip_mode_with_accumulation() -> None:
    first, second = run_ranks(2, both_ways)
    for name, ((by_ddp, share, _), (flat, flat_share, (single, several))) in first.items():
        torch.testing.assert_close(flat, by_ddp, rtol=1e-6, atol=1e-7)
        assert flat == second[name][1][0], "both ranks have the same gradients"
        assert flat_share == share
        assert len(flat) == 7 * 11 + 11 + 11 * 5 + 5 + 5 * 3 + 3
        # three layers, three buckets; gradients that are where they belong are not copied
        assert (single, several) == ((0, 3) if name.endswith("True") else (0, 0))


def test_a_bucket_takes_in_gradients_once_and_shows_them_flat() -> None:
    model = small_model(3)
    (bucket,) = flat_buckets(model, 25)
    loss_of(model, 0, 0).backward()
    norm = gradient_norm(model.parameters())
    with Copies() as copies:
        bucket.take_in()
        bucket.take_in()
    assert copies.several == 1
    torch.testing.assert_close(bucket.buffer().norm(), norm)
    assert all(one.grad is view for one, view in zip(bucket.parameters, bucket.views, strict=True))
