"""Keep the model's replicas equal: DDP with whole optimizer state, or buckets with slices of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import nn

from bertbench.common.ranges import ALL_REDUCE, named
from bertbench.distributed.shared_memory import SharedMemory
from bertbench.distributed.world import World
from bertbench.model.bert import Bert
from bertbench.optim.bucket_parallel import BucketParallel
from bertbench.optim.bucket_sum import BucketSum, TensorFuture, done
from bertbench.optim.buckets import Buckets, bucket_table, ready_order
from bertbench.optim.build import build_norm, build_optimizer, build_sliced_optimizer
from bertbench.optim.collectives import Exchange, exchange
from bertbench.optim.comm_hook import Reducer
from bertbench.optim.communication import (
    FORMATS,
    HierarchicalSum,
    OwnGradient,
    SumTensor,
    bucket_sum,
    flat_sum,
    plain_sum,
)
from bertbench.optim.delayed import DelayedSum
from bertbench.optim.distributed import SlicedDataParallel
from bertbench.optim.local_updates import LocalUpdates
from bertbench.optim.scaler import LossScaler
from bertbench.optim.state import Optimizer

if TYPE_CHECKING:  # as in ddp_trainer.py
    from bertbench.config import System


class Reduction(Protocol):
    """Clips and sums gradients during the backward pass."""

    buckets: tuple[int, ...]
    """Elements of each bucket of the last step, in the order of reduction."""

    def finish(self) -> torch.Tensor | None:
        """End a step's reduction; see `comm_hook.Reducer.finish`."""

    def reset(self) -> None:
        """Forget the state of earlier steps; call it after a warm-up."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors in memory on which later reductions depend."""


class DataParallel(NamedTuple):
    """The parts with which a trainer computes."""

    module: nn.parallel.DistributedDataParallel | SlicedDataParallel | BucketParallel
    """The model to call; its gradients are summed over the ranks."""
    reduction: Reduction
    norm: Callable[[], torch.Tensor]
    """Computes the norm of the summed gradient, on the device."""
    optimizer: Optimizer
    arithmetic: str
    """Describes the optimizer's arithmetic in a line."""


class Slices(NamedTuple):
    """Buckets of a model's weights and gradients; every rank's optimizer owns a slice of each."""

    buckets: Buckets
    exchange: Exchange


def move_to_buckets(system: System, world: World, model: Bert, backward: Callable[[], None]) -> Slices:
    """Move a model's weights into buckets, in the order of `backward`'s gradients; call it before compiling."""
    among = exchange(system.communication.hierarchical, world.ranks.local_size)
    table = bucket_table(ready_order(model, backward), system.communication.bucket_mb)
    return Slices(Buckets(table, world.size, among.place), among)


def data_parallel(
    system: System, world: World, model: Bert, slices: Slices | None, scaler: LossScaler | None
) -> DataParallel:
    """Join the ranks' replicas of a model, already on its device. Collective."""
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
    return bucket_sum(options, local_size, _whole_sum(system, world))


def memory_for_sums(system: System, world: World) -> SharedMemory | None:
    """Return the memory in which ranks sum whole gradients at once; None where torch's collectives do something else.

    Delayed gradients are summed behind the next steps, and a recorded step replays operations of torch.
    """
    communication = system.communication
    whole = communication.compression in ("none", *FORMATS) and not communication.hierarchical
    at_once = not system.sync.delay and system.compute.compile != "graphs"
    return world.shared if whole and at_once and not system.optimizer.sharded else None


def _whole_sum(system: System, world: World) -> SumTensor | None:
    shared = memory_for_sums(system, world)
    if shared is None:
        return None

    def sum_tensor(buffer: torch.Tensor) -> TensorFuture:
        with named(ALL_REDUCE):
            shared.sum(buffer)
        return done(buffer)

    return sum_tensor


def local_updates(system: System, world: World, model: Bert) -> LocalUpdates | None:
    """Return the local updates of ranks that train independently, None for other methods. Collective."""
    if system.sync.outer is None:
        return None
    sum_tensor: SumTensor = _whole_sum(system, world) or flat_sum
    if system.communication.hierarchical:
        sum_tensor = HierarchicalSum(world.ranks.local_size)
    return LocalUpdates(model, model.fused_parameters(), world.size, system.sync.outer, sum_tensor)
