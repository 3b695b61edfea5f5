"""Build a run's optimizer: the one place that chooses the implementation of its arithmetic."""

import importlib
from collections.abc import Callable
from functools import partial
from types import ModuleType

import torch
from torch import distributed, nn

from bertbench.common.errors import ConfigError
from bertbench.model.bert import Bert
from bertbench.model.span import SpanBert
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.apex import ApexAdam
from bertbench.optim.blocks import blocks_step
from bertbench.optim.buckets import Buckets
from bertbench.optim.clip import gradient_norm
from bertbench.optim.collectives import Exchange
from bertbench.optim.distributed import SlicedOptimizer, WholeNorms, sliced_adam
from bertbench.optim.foreach import foreach_step, native_adam_step
from bertbench.optim.fused import CompilerMissing, FusedStep
from bertbench.optim.muon import build_muon
from bertbench.optim.options import Implementation, OptimizerOptions
from bertbench.optim.state import Optimizer, Step

PlainLamb = Callable[..., None]
"""A `Step` that also takes `whole_norms`."""

_TRITON = "Triton kernels over chunks of all tensors"
# Above this, fusing saves seconds every hundred steps; below, it would not repay its 10 s of compiling.
_FUSED_FROM = 20_000_000
# Blocks take ten calls a tensor: for the demo's 0.4 million parameters 2.4 ms a step, multi-tensor operations 1.9 ms.
_BLOCKS_FROM = 2_000_000


def build_optimizer(model: Bert | SpanBert, options: OptimizerOptions, impl: Implementation) -> tuple[Optimizer, str]:
    """Return the optimizer of a model, already on its device, and a text that describes its arithmetic.

    Collective: all ranks choose the same arithmetic. Raises ConfigError if `impl` is not installed.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    fused, adam, trust_ratio = model.fused_parameters(), options.adam, options.trust_ratio
    if not options.is_adam_or_lamb:
        assert isinstance(model, Bert), "fine-tuning takes Adam"
        return build_muon(model, options, None)
    if impl == "apex":
        return ApexAdam(parameters, adam, trust_ratio, fused), "NVIDIA apex's fused kernels"
    if impl == "triton":
        kernels = _triton()
        step = kernels.TritonStep()
        return MultiTensorAdam(parameters, adam, trust_ratio, fused, step, step), _TRITON
    step, text = _matrix_step(parameters, trust_ratio)
    return MultiTensorAdam(parameters, adam, trust_ratio, fused, step), text


def build_sliced_optimizer(
    model: Bert, buckets: Buckets, exchange: Exchange, options: OptimizerOptions, impl: Implementation
) -> tuple[SlicedOptimizer, str]:
    """Return the optimizer of this rank's slices of a model in buckets, and a text that describes its arithmetic.

    Raises ConfigError if `impl` is not installed.
    """
    where = "on this rank's slice of every bucket, weights gathered behind the next forward pass"
    if not options.is_adam_or_lamb:
        local, text = build_muon(model, options, buckets)
        return SlicedOptimizer(model, buckets, exchange, local), f"{text}, {where}"
    vector_step: Step | None = None
    step_with: Callable[[WholeNorms], Step]
    if impl == "triton":
        kernels = _triton()
        step_with, vector_step, text = kernels.TritonStep, kernels.TritonStep(), _TRITON
    elif options.trust_ratio:
        step, text = plain_lamb(buckets.weights.numel() // buckets.ranks, buckets.weights.device)
        step_with = partial(_with_norms, step)
    else:
        step_with, text = lambda _: native_adam_step, "torch's fused Adam"
    fused = model.fused_parameters()
    parts = sliced_adam(buckets, options.adam, options.trust_ratio, fused, step_with, vector_step)
    return SlicedOptimizer(model, buckets, exchange, *parts), f"{text} {where}"


def build_norm(model: nn.Module, impl: Implementation) -> Callable[[], torch.Tensor]:
    """Return a function that computes the norm of a model's whole gradient, on the device."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return _triton().TritonNorm(parameters) if impl == "triton" else partial(gradient_norm, parameters)


def _with_norms(step: PlainLamb, whole_norms: WholeNorms) -> Step:
    return partial(step, whole_norms=whole_norms)


def _triton() -> ModuleType:
    """Return the module of our Triton kernels; raises ConfigError if Triton is not installed."""
    try:
        return importlib.import_module("bertbench.optim.triton_step")
    except ImportError as error:
        raise ConfigError(
            f"optimizer.impl triton: found no Triton ({error}); install bertbench[kernels], or set optimizer.impl to "
            "torch"
        ) from error


def _matrix_step(parameters: list[nn.Parameter], trust_ratio: bool) -> tuple[Step, str]:
    if not trust_ratio:
        return native_adam_step, "torch's fused Adam"
    total, device = sum(parameter.numel() for parameter in parameters), parameters[0].device
    if total < _FUSED_FROM:
        return plain_lamb(total, device)
    fused: FusedStep | None = None
    reason = "another rank has no compiler"
    try:
        fused = FusedStep(device)
    except CompilerMissing as error:
        reason = str(error)
    works = torch.tensor(fused is not None, dtype=torch.int32, device=device)
    distributed.all_reduce(works, distributed.ReduceOp.MIN)  # mixed arithmetic would let the replicas' weights diverge
    if fused is not None and works:
        return fused, "passes fused by torch.compile"
    step, text = plain_lamb(total, device)
    slower = "a fifth" if step is blocks_step else "3 to 5 times"
    return step, f"{text}, {slower} slower than fused passes ({reason})"


def plain_lamb(parameters: int, device: torch.device) -> tuple[PlainLamb, str]:
    """Return LAMB's step without a compiler, and a text that describes its arithmetic."""
    if device.type == "cpu" and parameters >= _BLOCKS_FROM:
        return blocks_step, "torch's fused Adam on blocks that stay in the cache"
    return foreach_step, "torch's multi-tensor operations"
