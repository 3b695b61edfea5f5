"""Which optimizer a run gets: the one place that decides how its arithmetic is done."""

from collections.abc import Sequence

import torch
from torch import distributed, nn

from bertbench.model.bert import Bert
from bertbench.model.span import SpanBert
from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.apex import ApexAdam
from bertbench.optim.blocks import blocks_step
from bertbench.optim.foreach import foreach_step, native_adam_step
from bertbench.optim.fused import CompilerMissing, FusedStep
from bertbench.optim.options import AdamOptions, Implementation
from bertbench.optim.state import Optimizer, Step
from bertbench.optim.zero import ShardedOptimizer

# From here on fusing saves seconds every hundred steps; below it would not earn its 10 s of compiling back.
_FUSED_FROM = 20_000_000
# Blocks take ten calls a tensor: for the demo's 0.4 million parameters 2.4 ms a step, multi-tensor operations 1.9 ms.
_BLOCKS_FROM = 2_000_000


def build_optimizer(
    model: Bert | SpanBert, options: AdamOptions, trust_ratio: bool, impl: Implementation, sharded: bool
) -> tuple[Optimizer, str]:
    """The optimizer of a model, whose weights must be where they stay, and a text that says how it computes.

    All ranks must call this at the same time, and all of them compute alike. Raises ConfigError if `impl` is not there.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    fused = model.fused_parameters()
    if impl == "apex":
        step, text = None, "NVIDIA apex's fused kernels"
    else:
        step, text = _matrix_step(parameters, trust_ratio)

    def build(share: Sequence[nn.Parameter]) -> Optimizer:
        if step is None:
            return ApexAdam(share, options, trust_ratio, fused)
        return MultiTensorAdam(share, options, trust_ratio, fused, step)

    if sharded:
        return ShardedOptimizer(parameters, build), f"{text}, state sharded over the ranks"
    return build(parameters), text


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
    distributed.all_reduce(works, distributed.ReduceOp.MIN)  # or copies of the weights would drift apart
    if fused is not None and works:
        return fused, "passes fused by torch.compile"
    step, text = plain_lamb(total, device)
    slower = "a fifth" if step is blocks_step else "3 to 5 times"
    return step, f"{text}, {slower} slower than fused passes ({reason})"


def plain_lamb(parameters: int, device: torch.device) -> tuple[Step, str]:
    """LAMB without a compiler, and a text that says how it computes."""
    if device.type == "cpu" and parameters >= _BLOCKS_FROM:
        return blocks_step, "torch's fused Adam on blocks that stay in the cache"
    return foreach_step, "torch's multi-tensor operations"
