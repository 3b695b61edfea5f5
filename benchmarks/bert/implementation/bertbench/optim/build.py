"""Which optimizer a run gets: the one place that decides how its arithmetic is done."""

from collections.abc import Callable
from functools import partial

import torch
from torch import distributed, nn

from bertbench.model.bert import Bert
from bertbench.model.span import SpanBert
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.apex import ApexAdam
from bertbench.optim.buckets import Buckets
from bertbench.optim.collectives import Exchange
from bertbench.optim.distributed import SlicedOptimizer, WholeNorms
from bertbench.optim.foreach import foreach_step, native_adam_step
from bertbench.optim.fused import CompilerMissing, FusedStep
from bertbench.optim.options import AdamOptions, Implementation
from bertbench.optim.state import Optimizer, Step

# From here on fusing saves seconds every hundred steps; below it would not earn its 10 s of compiling back.
_FUSED_FROM = 20_000_000


def build_optimizer(
    model: Bert | SpanBert, options: AdamOptions, trust_ratio: bool, impl: Implementation
) -> tuple[Optimizer, str]:
    """The optimizer of a model, whose weights must be where they stay, and a text that says how it computes.

    All ranks must call this at the same time, and all of them compute alike. Raises ConfigError if `impl` is not there.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    fused = model.fused_parameters()
    if impl == "apex":
        return ApexAdam(parameters, options, trust_ratio, fused), "NVIDIA apex's fused kernels"
    step, text = _matrix_step(parameters, trust_ratio)
    return MultiTensorAdam(parameters, options, trust_ratio, fused, step), text


def build_sliced_optimizer(
    model: Bert, buckets: Buckets, exchange: Exchange, options: AdamOptions, trust_ratio: bool
) -> tuple[SlicedOptimizer, str]:
    """The optimizer of this rank's slices of a model in buckets, and a text that says how it computes."""
    step_with: Callable[[WholeNorms], Step] = _foreach_with if trust_ratio else lambda _: native_adam_step
    text = "torch's multi-tensor operations" if trust_ratio else "torch's fused Adam"
    optimizer = SlicedOptimizer(model, buckets, exchange, options, trust_ratio, model.fused_parameters(), step_with)
    return optimizer, f"{text} on this rank's slice of every bucket, weights gathered behind the next forward pass"


def _foreach_with(whole_norms: WholeNorms) -> Step:
    return partial(foreach_step, whole_norms=whole_norms)


def _matrix_step(parameters: list[nn.Parameter], trust_ratio: bool) -> tuple[Step, str]:
    if not trust_ratio:
        return native_adam_step, "torch's fused Adam"
    total, device = sum(parameter.numel() for parameter in parameters), parameters[0].device
    if total < _FUSED_FROM:
        return foreach_step, "torch's multi-tensor operations"
    fused: FusedStep | None = None
    reason = "another rank has no compiler"
    try:
        fused = FusedStep(device)
    except CompilerMissing as error:
        reason = str(error)
    works = torch.tensor(fused is not None, dtype=torch.int32, device=device)
    distributed.all_reduce(works, distributed.ReduceOp.MIN)  # or copies of the weights would drift apart
    if fused is not None and works:
        return fused, "passes fused by torch.compile"
    return foreach_step, f"torch's multi-tensor operations, 3 to 5 times slower than fused passes ({reason})"
