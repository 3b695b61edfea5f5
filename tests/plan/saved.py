"""Count the bytes that a forward pass saves for its backward pass; on a CPU, also those that a GPU would save."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bertbench.balance.random_samples import samples_of_lengths
from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.loading.batch import Batch, batch_of
from bertbench.model import loops
from bertbench.model.arithmetic import autocast_type, computing
from bertbench.model.sequences import Sequences


def saved_bytes(system: System, module: nn.Module, compute: Callable[[], Tensor]) -> int:
    """Return the bytes of all storages that `compute` saves on the system's device, but for output and weights.

    The next module saves the output as its input.
    """
    storages: dict[int, torch.UntypedStorage] = {}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with ExitStack() as contexts:
        if system.launch.device == "cuda":
            contexts.enter_context(loops.unused())
            contexts.enter_context(_AsOnCuda(autocast_type(system.precision.compute)))
        contexts.enter_context(computing(system.precision.compute, torch.device("cpu")))
        contexts.enter_context(torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor))
        output = compute()
    for tensor in (output, *module.parameters()):
        storages.pop(tensor.untyped_storage()._cdata, None)
    return sum(storage.nbytes() for storage in storages.values())


class _AsOnCuda(TorchFunctionMode):
    """Also save the tensors that CUDA saves and a CPU doesn't.

    Autocast computes softmax and LayerNorm in fp32 (torch.amp's op reference), and dropout keeps a mask in bytes, not
    factors. Compiled dropout, whose rate is positional, keeps such a mask on a CPU, too.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self._autocasts = dtype is not None

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), options: dict[str, Any] | None = None
    ) -> Any:
        options = options or {}
        if self._autocasts and function in (Tensor.softmax, functional.layer_norm):
            arguments = (arguments[0].float(), *arguments[1:])
        if function is functional.dropout and options.get("p", 0) > 0:
            dropped, _mask = torch.native_dropout(arguments[0], options["p"], options["training"])
            return dropped
        return function(*arguments, **options)


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
        output_THK = qkv_T3HK[:, 0].clone(memory_format=torch.contiguous_format)
        sums_HT = torch.empty(output_THK.shape[:2])
        ctx.save_for_backward(qkv_T3HK, output_THK, sums_HT)
        return output_THK


def saved_by_flash(qkv_T3HK: Tensor, sequences: Sequences, dropout: float) -> Tensor:
    """Save the tensors of the flash kernel, which no CPU has: inputs, output, and one fp32 sum per head and token."""
    output_THK: Tensor = _Flash.apply(qkv_T3HK, sequences, dropout)
    return output_THK


def batch_of_lengths(lengths_S: Integers) -> Batch:
    """Return sequences of these lengths with Wikipedia's share of masked tokens; content doesn't matter."""
    return batch_of(samples_of_lengths(np.sort(lengths_S)[::-1], seed=1, vocabulary=6))
