"""Choose the parts between a backward pass and updated weights: the one place that reads which variants a system wants.

backward -> reducer: clip, compress, exchange -> scale: unscale, rate -> optimizer -> weights: publish -> view
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from bertbench.config import System
from bertbench.distributed.shared_memory import SharedMemory
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets, Weights, bucket_table, ready_order
from bertbench.gradients.clip import make_clip
from bertbench.gradients.exchange import Exchange, exchange
from bertbench.gradients.gradient_sum import ELEMENT_SUMS, GradientSum, OwnGradient, sum_class
from bertbench.gradients.reducer import GradientReducer, Reducer
from bertbench.model.bert import Bert
from bertbench.optim.average import AverageView, EvaluationView
from bertbench.optim.build import build_norm, build_optimizer, tensors_in
from bertbench.optim.optimizer import Optimizer
from bertbench.optim.step_scale import FixedScale, LossScaler, RecordedScale


class GradientPath(NamedTuple):
    """The parts that a step passes through, in their order."""

    scale: FixedScale
    reducer: Reducer
    optimizer: Optimizer
    weights: Weights
    view: EvaluationView
    transport: str
    """What carries gradients: `shared memory`, or torch's `collectives`."""
    arithmetic: str
    """Describes the optimizer's arithmetic in a line."""


def build_path(
    system: System, world: World, model: Bert, backward: Callable[[], None]
) -> tuple[GradientPath, GradientReducer]:
    """Return the path of a whole model on its device, and its reducer. Collective.

    Buckets follow the order of `backward`'s gradients. Call it before compiling: sharded weights move.
    """
    communication, sharded = system.communication, system.optimizer.sharded
    shared = shared_memory(system, world)
    among = exchange(sharded, communication.hierarchical, world.ranks.local_size, shared)
    table = bucket_table(ready_order(model, backward), communication.bucket_mb)
    buckets = Buckets(table, sharded, among.slices, among.place)
    scale = _scale(system, world)
    clip = make_clip(system.clip.mode, system.clip.max_norm, world.size, len(buckets.all), scale.factor)
    norm = build_norm(model, system.optimizer.impl, buckets)
    added_to = system.compute.compile == "graphs" and system.data.gradient_accumulation_steps > 1
    reducer = GradientReducer(buckets, clip, _sum(system, among), norm, scale.factor, in_place=added_to)
    half = world.device.type == "cuda" or system.precision.compute == "bf16"
    product = torch.bfloat16 if half else torch.float32
    optimizer, text = build_optimizer(model, system.optimizer, buckets if sharded else None, product)
    weights = Weights()
    if sharded:
        from bertbench.gradients.slices import SlicedWeights  # noqa: PLC0415 - a run loads what it takes, here and below

        weights = SlicedWeights(model, buckets, among)
    view = _view(system, model, weights, buckets if sharded else None, among)
    transport = "shared memory" if shared else "collectives"
    return GradientPath(scale, reducer, optimizer, weights, view, transport, text), reducer


def shared_memory(system: System, world: World) -> SharedMemory | None:
    """Return the memory in which ranks sum whole gradients at once; None where torch's collectives do something else.

    Delayed gradients are summed behind the next steps, and a recorded step replays operations of torch.
    """
    communication = system.communication
    whole = communication.compression in ELEMENT_SUMS and not communication.hierarchical
    at_once = not system.sync.delay and system.compute.compile != "graphs"
    return world.shared if whole and at_once and not system.optimizer.sharded else None


def _scale(system: System, world: World) -> FixedScale:
    if system.scales_loss:
        first = system.precision.initial_loss_scale
        return LossScaler(system.learning_rate, system.max_steps, first, world.size, world.device)
    if system.compute.compile == "graphs":
        return RecordedScale(system.learning_rate, system.max_steps, world.device)
    return FixedScale(system.learning_rate, system.max_steps, system.sync.delay)


def _sum(system: System, among: Exchange) -> GradientSum:
    options = system.communication
    if system.sync.outer is not None:
        return OwnGradient(options, among)
    if system.sync.delay:
        from bertbench.gradients.delayed import DelayedSum  # noqa: PLC0415

        return DelayedSum(ELEMENT_SUMS[options.compression](options, among), system.sync.delay)
    return sum_class(options.compression)(options, among)


def _view(system: System, model: Bert, weights: Weights, buckets: Buckets | None, among: Exchange) -> EvaluationView:
    decay, outer = system.optimizer.ema_decay, system.sync.outer is not None
    if not decay and not outer:
        return EvaluationView(weights)
    tensors = tensors_in(buckets)(list(model.parameters()), model.fused_parameters())
    if outer:
        from bertbench.optim.outer_step import OuterStepView  # noqa: PLC0415

        return OuterStepView(tensors, system.sync, among)
    return AverageView(weights, tensors, decay)
