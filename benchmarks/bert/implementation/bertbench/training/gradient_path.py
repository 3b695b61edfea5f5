"""Choose the parts between a backward pass and updated weights. Only this file reads which variants a system asks for.

backward -> reducer: clip, round, exchange -> scale: unscale, rate -> optimizer -> weights: publish -> view: average

`build_path` is for a model that is whole on every rank, `build_split_path` for a model that is split over ranks. A
study's technique can replace the sum, the rates, the optimizer and the view of a whole model (technique.py).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from bertbench.config import System
from bertbench.distributed.shared_memory import SharedMemory
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets, ModelWeights, bucket_table, ready_order
from bertbench.gradients.clip import make_clip
from bertbench.gradients.exchange import Exchange, choose_exchange
from bertbench.gradients.gradient_sum import ELEMENT_SUMS, GradientSum, KeptBf16Sum
from bertbench.gradients.reducer import GradientReducer, PartwiseReducer, Reducer
from bertbench.model.arithmetic import autocast_type
from bertbench.model.bert import Bert
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.model.options import unchecked_mode, without_fp8
from bertbench.model.rounded_weights import RoundedWeights, rounded_layers
from bertbench.optim.average import AverageView, EvaluationView
from bertbench.optim.build_optimizer import build_norm, build_optimizer, handles_halves, tensor_factory
from bertbench.optim.interface import Optimizer
from bertbench.optim.step_scale import FixedScale, LossScaler, RecordedScale
from bertbench.training.technique import EVERY_STEP, Technique

if TYPE_CHECKING:
    from bertbench.parallel.process_groups import ProcessGroups
    from bertbench.parallel.stage import Stage


class GradientPath(NamedTuple):
    """The parts through which a step passes, in this order."""

    scale: FixedScale
    reducer: Reducer
    optimizer: Optimizer
    weights: ModelWeights
    view: EvaluationView
    transport: str
    """The way in which gradients are exchanged: by `shared memory`, or by torch's `collectives`."""
    arithmetic: str
    """A line that describes the optimizer's arithmetic."""
    clips_the_sum: bool
    """Whether the sum is clipped, and not what ranks contribute to it."""
    technique: str = EVERY_STEP.name


def build_path(
    system: System, world: World, model: Bert, backward: Callable[[], None], technique: Technique = EVERY_STEP
) -> GradientPath:
    """Return the path for a whole model, which is on its device, with the parts of a technique. Collective.

    Buckets follow the order in which `backward` computes gradients. Call this before compilation, because sharded
    weights move in memory.
    """
    sharded = system.optimizer.sharded
    shared = shared_memory(system, world)
    exchange = choose_exchange(sharded, shared)
    parameters = ready_order(model, backward)
    table = bucket_table(parameters, system.communication.bucket_mb, system.communication.buckets)
    buckets = Buckets(table, sharded, exchange.slices, exchange.place)
    sliced_buckets = buckets if sharded else None
    scale = _build_scale(system, world, technique)
    gradient_sum = technique.gradient_sum(exchange) or _plain_sum(system, exchange, buckets)
    clip_parts = system.clipped_parts
    contributions = world.size * clip_parts
    clips_the_sum = _clips_the_sum(system, contributions, gradient_sum)
    clip = make_clip(
        mode="after" if clips_the_sum else system.clip.mode,
        max_norm=system.clip.max_norm,
        contributions=contributions,
        buckets=system.clip.root_of(len(buckets.all)),
        scale=scale.factor,
    )
    norm = build_norm(model, system.optimizer.impl, buckets, gradient_sum.summed)
    if clip_parts > 1:
        reducer: GradientReducer = PartwiseReducer(buckets, clip, gradient_sum, norm, scale.factor)
    else:
        in_place = _records_accumulation(system)
        reducer = GradientReducer(buckets, clip, gradient_sum, norm, scale.factor, in_place)
    rounded = _round_weights(system, world, model)
    product = _product_format(system, world)
    optimizer, arithmetic = build_optimizer(
        model, system.optimizer, sliced_buckets, product, rounded, gradient_sum.summed
    )
    if sliced_buckets is None:
        weights = ModelWeights(rounded, handles_halves(system.optimizer))
    else:
        weights = _slice_weights(model, sliced_buckets, exchange, recorded=system.compute.compile == "graphs")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    tensors = tensor_factory(sliced_buckets)(trained, model.fused_parameters())
    return GradientPath(
        scale=scale,
        reducer=reducer,
        optimizer=technique.optimizer(optimizer, trained),
        weights=weights,
        view=technique.view(weights, tensors, exchange) or _plain_view(system, weights, tensors),
        transport=gradient_sum.transport,
        arithmetic=arithmetic,
        clips_the_sum=clips_the_sum,
        technique=technique.name,
    )


def build_split_path(
    system: System, groups: "ProcessGroups", stages: Sequence["Stage"], parameters: Sequence[nn.Parameter]
) -> GradientPath:
    """Return the path for this rank's stages of a split model, whose parameters are `parameters`. Collective.

    The configuration refuses all other variants for such models (config/layout_rules.py).
    """
    from bertbench.parallel.gradients import SplitReducer, build_shard_optimizer  # noqa: PLC0415 - for split models
    from bertbench.parallel.tensor_parallel import norm_parameters  # noqa: PLC0415

    words = next((stage.words for stage in stages if stage.words is not None), None)
    parameters_of_token_shares: list[nn.Parameter] = []
    if system.layout.token_shares > 1:
        for stage in stages:
            parameters_of_token_shares += norm_parameters(stage)
    reducer = SplitReducer(
        parameters=parameters,
        words=words,
        groups=groups,
        clip=make_clip(system.clip.mode, system.clip.max_norm, groups.world.size, buckets=1),
        fully_shard=system.parallel.fully_shard,
        parts=system.parts,
        parameters_of_token_shares=parameters_of_token_shares,
    )
    weights = ModelWeights()
    return GradientPath(
        scale=FixedScale(system.learning_rate, system.max_steps),
        reducer=reducer,
        optimizer=build_shard_optimizer(parameters, system.optimizer, groups.shards),
        weights=weights,
        view=_plain_view(system, weights, LogicalTensors(parameters, {})),
        transport="collectives",
        arithmetic="torch's multi-tensor operations on this rank's part of the model",
        clips_the_sum=system.clip.mode == "after",
    )


def shared_memory(system: System, world: World) -> SharedMemory | None:
    """Return the memory in which ranks sum whole gradients at once; None if torch's collectives are needed.

    They are needed for sums of slices, and for recorded steps, which can replay only operations of torch.
    """
    sums_slices = system.optimizer.sharded
    recorded = system.compute.compile == "graphs"
    return None if sums_slices or recorded else world.shared


def _clips_the_sum(system: System, contributions: int, gradient_sum: GradientSum) -> bool:
    """Return whether to clip the sum: in mode `after`, and in mode `before` if the only contribution is the sum.

    Mode `after` sees the sum over all ranks, `before` the whole gradient of a rank or of one of its parts, and `bucket`
    each bucket of that gradient.
    LAMB can clip the sum while it reads it. Clipping the contribution would need a norm and a pass that move 12 bytes
    for each parameter: 1.4 ms of BERT-Large's step on an H100 (computed). The run's description says so.
    """
    if system.clip.mode == "before":
        return contributions == 1 and gradient_sum.keeps_a_single_one
    return system.clip.mode == "after"


def _build_scale(system: System, world: World, technique: Technique) -> FixedScale:
    rates = technique.learning_rate(system.learning_rate)
    if system.scales_loss:
        return LossScaler(rates, system.max_steps, system.precision.initial_loss_scale, world.size, world.device)
    if system.compute.compile == "graphs":
        return RecordedScale(rates, system.max_steps, world.device)
    return FixedScale(rates, system.max_steps)


def _plain_sum(system: System, exchange: Exchange, buckets: Buckets) -> GradientSum:
    compression = system.communication.compression
    if compression == "bf16" and handles_halves(system.optimizer) and not system.optimizer.sharded:
        return KeptBf16Sum(exchange, buckets)
    return ELEMENT_SUMS[compression](exchange)


def _records_accumulation(system: System) -> bool:
    """Return whether recorded backward passes add to existing gradients, which then must stay in place."""
    return system.compute.compile == "graphs" and system.data.gradient_accumulation_steps > 1


def _product_format(system: System, world: World) -> torch.dtype:
    """Return the format of Muon's products: bf16 on a GPU, and on a CPU if the model's products are in bf16."""
    if world.device.type == "cuda" or without_fp8(system.precision.compute) == "bf16":
        return torch.bfloat16
    return torch.float32


def _round_weights(system: System, world: World, model: Bert) -> RoundedWeights | None:
    """Return 16-bit copies of the weights that compiled products read; None if such copies aren't possible or needed.

    Sharded weights arrive in fp32 during the next forward pass. fp8's products round the fp32 weights themselves.
    """
    dtype = autocast_type(system.precision.compute)
    is_compiled = unchecked_mode(system.compute.compile, world.device.type) != "none"
    is_fp8 = system.precision.compute == "fp8"
    if dtype is None or is_fp8 or not is_compiled or system.optimizer.sharded:
        return None
    return RoundedWeights(rounded_layers(model), dtype)


def _slice_weights(model: Bert, sliced_buckets: Buckets, exchange: Exchange, recorded: bool) -> ModelWeights:
    from bertbench.gradients.slices import LateWeights, SlicedWeights  # noqa: PLC0415

    if recorded:
        return LateWeights(model, sliced_buckets, exchange)
    return SlicedWeights(model, sliced_buckets, exchange)


def _plain_view(system: System, weights: ModelWeights, tensors: LogicalTensors) -> EvaluationView:
    decay = system.optimizer.ema_decay
    return AverageView(weights, tensors, decay) if decay else EvaluationView(weights)
