"""How the copies of a model on all ranks stay one: DDP with whole optimizer state, or buckets with slices of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import nn

from bertbench.distributed.world import World
from bertbench.model.bert import Bert
from bertbench.optim.bucket_parallel import BucketParallel
from bertbench.optim.bucket_sum import BucketSum
from bertbench.optim.buckets import Buckets, bucket_table, ready_order
from bertbench.optim.build import build_norm, build_optimizer, build_sliced_optimizer
from bertbench.optim.collectives import Exchange, exchange
from bertbench.optim.comm_hook import Reducer
from bertbench.optim.communication import HierarchicalSum, OwnGradient, bucket_sum, flat_sum, plain_sum
from bertbench.optim.delayed import DelayedSum
from bertbench.optim.distributed import SlicedDataParallel
from bertbench.optim.local_updates import LocalUpdates
from bertbench.optim.scaler import LossScaler
from bertbench.optim.state import Optimizer

if TYPE_CHECKING:  # as in ddp_trainer.py
    from bertbench.config import System


class Reduction(Protocol):
    """Clips and sums gradients behind the backward pass."""

    buckets: tuple[int, ...]
    """Elements of each bucket of the last step, in the order in which they travel."""

    def finish(self) -> torch.Tensor | None:
        """End a step's reduction; see `comm_hook.Reducer.finish`."""

    def reset(self) -> None:
        """Forget what former steps left behind; after a warm-up."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return what the reductions to come depend on, as it is in memory."""


class DataParallel(NamedTuple):
    """What a trainer computes with."""

    module: nn.parallel.DistributedDataParallel | SlicedDataParallel | BucketParallel
    """The model to call, whose gradients are summed."""
    reduction: Reduction
    norm: Callable[[], torch.Tensor]
    """Of the summed gradient, on the device."""
    optimizer: Optimizer
    arithmetic: str
    """The optimizer's, in a line."""


class Slices(NamedTuple):
    """Where a model's weights and gradients are, of which every rank's optimizer keeps a slice."""

    buckets: Buckets
    exchange: Exchange


def move_to_buckets(system: System, world: World, model: Bert, backward: Callable[[], None]) -> Slices:
    """Move a model's weights into buckets, in the order in which `backward` gives gradients; before it is compiled."""
    among = exchange(system.communication.hierarchical, world.ranks.local_size)
    table = bucket_table(ready_order(model, backward), system.communication.bucket_mb)
    return Slices(Buckets(table, world.size, among.place), among)


def data_parallel(
    system: System, world: World, model: Bert, slices: Slices | None, scaler: LossScaler | None
) -> DataParallel:
    """Join the ranks' copies of a model, whose weights are where they stay; every rank must call this."""
    scale = None if scaler is None else scaler.scale
    half = world.device.type == "cuda" or system.precision.compute == "bf16"
    options, communication = replace(system.optimizer.options(), half_products=half), system.communication
    if slices is not None:
        module = SlicedDataParallel(
            model, *slices, system.clip.mode, system.clip.max_norm, communication.compression, scale
        )
        optimizer, text = build_sliced_optimizer(model, *slices, options, system.optimizer.impl)
        return DataParallel(module, module, module.norm, optimizer, text)
    reducer = Reducer(
        system.clip.mode,
        system.clip.max_norm,
        world.size,
        _bucket_sum(system, world),
        scale,
    )
    launches_cost = world.device.type == "cuda" and communication.compression != "powersgd"
    attach = reducer.attach_buckets if launches_cost else reducer.attach
    parallel = attach(model, communication.bucket_mb)
    whole, text = build_optimizer(model, options, system.optimizer.impl)
    return DataParallel(parallel, reducer, build_norm(model, system.optimizer.impl), whole, text)


def _bucket_sum(system: System, world: World) -> BucketSum:
    options, local_size = system.communication.options(), world.ranks.local_size
    if system.sync.outer is not None:
        return OwnGradient()
    if system.sync.delay:
        return DelayedSum(plain_sum(options, local_size), system.sync.delay)
    return bucket_sum(options, local_size)


def local_updates(system: System, world: World, model: Bert) -> LocalUpdates | None:
    """Return what makes weights of ranks that train alone equal again, None where none does; every rank calls this."""
    if system.sync.outer is None:
        return None
    sum_tensor = HierarchicalSum(world.ranks.local_size) if system.communication.hierarchical else flat_sum
    return LocalUpdates(model, model.fused_parameters(), world.size, system.sync.outer, sum_tensor)
