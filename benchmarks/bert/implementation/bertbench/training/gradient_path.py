"""Choose the parts between a backward pass and updated weights. Only this file reads which variants a system asks for.

backward -> reducer: clip, compress, exchange -> scale: unscale, rate -> optimizer -> weights: publish
         -> outer step, if ranks train independently -> view

`build_path` is for a model that is whole on every rank, `build_split_path` for a model that is split over ranks.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from bertbench.config import System
from bertbench.config.optimizer import ClipMode
from bertbench.distributed.shared_memory import SharedMemory
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets, ModelWeights, bucket_table, ready_order
from bertbench.gradients.clip import make_clip
from bertbench.gradients.exchange import Exchange, choose_exchange
from bertbench.gradients.gradient_sum import ELEMENT_SUMS, GradientSum, KeptHalfSum, OwnGradient, sum_class
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

if TYPE_CHECKING:
    from bertbench.optim.outer_step import OuterStep
    from bertbench.parallel.process_groups import ProcessGroups
    from bertbench.parallel.stage import Stage


class GradientPath(NamedTuple):
    """The parts through which a step passes, in this order."""

    scale: FixedScale
    reducer: Reducer
    optimizer: Optimizer
    weights: ModelWeights
    outer_step: "OuterStep | None"
    """The common step of all ranks if they train independently: local SGD, DiLoCo."""
    view: EvaluationView
    transport: str
    """The way in which gradients are exchanged: by `shared memory`, or by torch's `collectives`."""
    arithmetic: str
    """A line that describes the optimizer's arithmetic."""


def build_path(system: System, world: World, model: Bert, backward: Callable[[], None]) -> GradientPath:
    """Return the path for a whole model, which is on its device. Collective.

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
    scale = _build_scale(system, world)
    clip_parts = system.clipped_parts
    clip = make_clip(
        mode=_clip_mode(system, world),
        max_norm=system.clip.max_norm,
        contributions=world.size * clip_parts,
        buckets=system.clip.root_of(len(buckets.all)),
        scale=scale.factor,
    )
    gradient_sum = _build_sum(system, exchange, buckets)
    summed = gradient_sum.summed if isinstance(gradient_sum, KeptHalfSum) else None
    norm = build_norm(model, system.optimizer.impl, buckets, summed)
    if clip_parts > 1:
        reducer: GradientReducer = PartwiseReducer(buckets, clip, gradient_sum, norm, scale.factor)
    else:
        in_place = _records_accumulation(system)
        reducer = GradientReducer(buckets, clip, gradient_sum, norm, scale.factor, in_place)
    rounded = _round_weights(system, world, model)
    product = _product_format(system, world)
    optimizer, arithmetic = build_optimizer(model, system.optimizer, sliced_buckets, product, rounded, summed)
    if sliced_buckets is None:
        weights = ModelWeights(rounded, handles_halves(system.optimizer))
    else:
        weights = _slice_weights(model, sliced_buckets, exchange, recorded=system.compute.compile == "graphs")
    outer_step, view = _build_view(system, model, weights, sliced_buckets, exchange)
    return GradientPath(
        scale=scale,
        reducer=reducer,
        optimizer=optimizer,
        weights=weights,
        outer_step=outer_step,
        view=view,
        transport="shared memory" if shared else "collectives",
        arithmetic=arithmetic,
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
    decay = system.optimizer.ema_decay
    if decay:
        view: EvaluationView = AverageView(weights, LogicalTensors(parameters, {}), decay)
    else:
        view = EvaluationView(weights)
    return GradientPath(
        scale=FixedScale(system.learning_rate, system.max_steps),
        reducer=reducer,
        optimizer=build_shard_optimizer(parameters, system.optimizer, groups.shards),
        weights=weights,
        outer_step=None,
        view=view,
        transport="collectives",
        arithmetic="torch's multi-tensor operations on this rank's part of the model",
    )


def shared_memory(system: System, world: World) -> SharedMemory | None:
    """Return the memory in which ranks sum whole gradients at once; None if torch's collectives are needed.

    They are needed for delayed gradients, which are summed during later steps, and for recorded steps, which can replay
    only operations of torch.
    """
    sums_elements = system.communication.compression in ELEMENT_SUMS
    sums_slices = system.optimizer.sharded
    delayed = system.sync.delay > 0
    recorded = system.compute.compile == "graphs"
    if sums_slices or delayed or recorded:
        return None
    return world.shared if sums_elements else None


def _clip_mode(system: System, world: World) -> ClipMode:
    """Return how to clip.

    If there is only one contribution, it is the sum, and LAMB can clip it while it reads it. Clipping it separately
    would need a norm and a pass that move 12 bytes for each parameter: 1.4 ms of BERT-Large's step on an H100
    (computed).
    """
    is_alone = world.size * system.clipped_parts == 1 and system.communication.compression == "none"
    if system.clip.mode == "before" and is_alone:
        return "after"
    return system.clip.mode


def _build_scale(system: System, world: World) -> FixedScale:
    if system.scales_loss:
        initial_scale = system.precision.initial_loss_scale
        return LossScaler(system.learning_rate, system.max_steps, initial_scale, world.size, world.device)
    if system.compute.compile == "graphs":
        return RecordedScale(system.learning_rate, system.max_steps, world.device)
    return FixedScale(system.learning_rate, system.max_steps, system.sync.delay)


def _build_sum(system: System, exchange: Exchange, buckets: Buckets) -> GradientSum:
    options = system.communication
    if system.sync.outer is not None:
        return OwnGradient(options, exchange)
    if system.sync.delay:
        from bertbench.gradients.delayed import DelayedSum  # noqa: PLC0415 - a run loads only what it uses, as below

        element_sum = ELEMENT_SUMS[options.compression](options, exchange)
        return DelayedSum(element_sum, system.sync.delay)
    if options.compression == "bf16" and handles_halves(system.optimizer) and not system.optimizer.sharded:
        return KeptHalfSum(options, exchange, buckets)
    return sum_class(options.compression)(options, exchange)


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

    Sharded weights arrive in fp32 during the next forward pass, and ranks that train independently replace their
    weights by a mean. fp8's products round the fp32 weights themselves.
    """
    dtype = autocast_type(system.precision.compute)
    is_compiled = unchecked_mode(system.compute.compile, world.device.type) != "none"
    stays_here = not system.optimizer.sharded and system.sync.outer is None
    is_fp8 = system.precision.compute == "fp8"
    if dtype is None or is_fp8 or not is_compiled or not stays_here:
        return None
    return RoundedWeights(rounded_layers(model), dtype)


def _slice_weights(model: Bert, sliced_buckets: Buckets, exchange: Exchange, recorded: bool) -> ModelWeights:
    from bertbench.gradients.slices import LateWeights, SlicedWeights  # noqa: PLC0415

    if recorded:
        return LateWeights(model, sliced_buckets, exchange)
    return SlicedWeights(model, sliced_buckets, exchange)


def _build_view(
    system: System, model: Bert, weights: ModelWeights, sliced_buckets: Buckets | None, exchange: Exchange
) -> tuple["OuterStep | None", EvaluationView]:
    """Return the outer step, if ranks train independently, and the view of the weights for evaluations."""
    trains_alone = system.sync.outer is not None
    decay = system.optimizer.ema_decay
    if not trains_alone and not decay:
        return None, EvaluationView(weights)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    tensors = tensor_factory(sliced_buckets)(trained, model.fused_parameters())
    if trains_alone:
        from bertbench.optim.outer_step import MeanView, OuterStep  # noqa: PLC0415

        outer_step = OuterStep(tensors, system.sync, exchange)
        return outer_step, MeanView(tensors, outer_step)
    return None, AverageView(weights, tensors, decay)
