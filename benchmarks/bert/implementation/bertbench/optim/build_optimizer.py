"""Build a run's optimizer: the one place that chooses the implementation of its arithmetic."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType

import torch
from torch import Tensor, nn

from bertbench.common.errors import ConfigError
from bertbench.config.optimizer import Implementation, OptimizerSettings
from bertbench.gradients.buckets import Buckets
from bertbench.gradients.clip import gradient_norm
from bertbench.model.bert import Bert
from bertbench.model.logical_tensors import LogicalTensorFactory, LogicalTensors
from bertbench.model.rounded_weights import RoundedWeights
from bertbench.optim.adam import MultiTensorAdam, blocks_step, foreach_step, native_adam_step
from bertbench.optim.interface import Optimizer, StepFunction

# Blocks need ten calls for each tensor. For the demo's 0.4 million parameters a step takes 2.4 ms by blocks, and 1.9 ms
# by multi-tensor operations.
_BLOCKS_FROM = 2_000_000


def build_optimizer(
    model: Bert,
    options: OptimizerSettings,
    buckets: Buckets | None = None,
    product: torch.dtype = torch.float32,
    rounded: RoundedWeights | None = None,
    summed: Mapping[Tensor, Tensor] | None = None,
) -> tuple[Optimizer, str]:
    """Return the optimizer of a model that is already on its device, and a text that describes its arithmetic.

    With `buckets`, the optimizer updates this rank's slices of them. Muon computes its products in `product`. If the
    optimizer `handles_halves`, it writes the 16-bit copies in `rounded` and reads 16-bit gradients from `summed`; both
    are by parameter. Raises ConfigError if `options.impl` isn't installed.
    """
    suffix = ", on this rank's slice of each bucket; the next forward pass gathers the weights" if buckets else ""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    fused = model.fused_parameters()
    if not options.is_adam_or_lamb:
        from bertbench.optim.muon import build_muon  # noqa: PLC0415 - a run loads its own arithmetic, here and below

        return build_muon(model, options, product)
    if options.impl == "apex":
        from bertbench.optim.apex import ApexLamb  # noqa: PLC0415

        return ApexLamb(parameters, options, fused), "NVIDIA apex's fused kernels"
    step, vector_step, text = _choose_steps(parameters, options, buckets)
    whole_norms = None
    if buckets is not None and options.trust_ratio:
        from bertbench.gradients.slices import norms_over_slices  # noqa: PLC0415

        whole_norms = norms_over_slices(buckets, fused)
    adam = MultiTensorAdam(
        parameters,
        options,
        fused,
        step,
        vector_step,
        tensor_factory(buckets),
        whole_norms,
        rounded=rounded.copies if rounded and handles_halves(options) else None,
        summed=summed,
    )
    return adam, text + suffix


def handles_halves(options: OptimizerSettings) -> bool:
    """Return whether the optimizer writes 16-bit copies along with the weights, and can read 16-bit gradients."""
    return options.is_adam_or_lamb and options.impl == "triton"


def tensor_factory(buckets: Buckets | None) -> LogicalTensorFactory:
    """Return the function that makes an optimizer's tensors: this rank's slices of the buckets, or whole tensors."""
    if buckets is None:
        return LogicalTensors
    from bertbench.gradients.slices import LogicalSlices  # noqa: PLC0415

    return partial(LogicalSlices, buckets)


def _choose_steps(
    parameters: list[nn.Parameter], options: OptimizerSettings, buckets: Buckets | None
) -> tuple[StepFunction, StepFunction | None, str]:
    """Return the step for matrices, the step for vectors if it is another one, and a text that describes both."""
    if options.impl == "triton":
        step = _triton().TritonStep()
        return step, step, "Triton kernels over chunks of all tensors"
    if not options.trust_ratio:
        return native_adam_step, None, "torch's fused Adam"
    elements = sum(parameter.numel() for parameter in parameters)
    if buckets is not None:
        elements //= buckets.slices
    if parameters[0].device.type == "cpu" and elements >= _BLOCKS_FROM:
        return blocks_step, None, "torch's fused Adam on cache-sized blocks"
    return foreach_step, None, "torch's multi-tensor operations"


def build_norm(
    model: nn.Module, impl: Implementation, buckets: Buckets, summed: Mapping[Tensor, Tensor] | None = None
) -> Callable[[], Tensor]:
    """Return a function that computes the norm of a model's whole gradient on the device.

    Triton's kernels read the gradient from `summed`, if that is given.
    """
    if buckets.weights:
        from bertbench.gradients.slices import sliced_norm  # noqa: PLC0415

        return partial(sliced_norm, [buckets.my_slice(bucket.gradients) for bucket in buckets.all])
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if impl == "triton":
        return _triton().TritonNorm(parameters, summed)
    return partial(gradient_norm, parameters)


def _triton() -> ModuleType:
    """Return the module of our Triton kernels; raises ConfigError if Triton is not installed."""
    try:
        return importlib.import_module("bertbench.optim.triton_step")
    except ImportError as error:
        raise ConfigError(
            f"optimizer.impl triton: Triton isn't installed ({error}); install bertbench[kernels], or set "
            "optimizer.impl to torch"
        ) from error
