"""Simulate one rank of an absent world with tensors that have sizes but no content.

The code that trains runs on them: the model, its loss, the order of its gradients. So buckets and activations are
counted, not estimated, in a second or two and a few hundred megabytes, whatever the system's size.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bertbench.balance.lengths import predictions
from bertbench.config import System
from bertbench.data.store.columns import Columns
from bertbench.dry_run.link_bytes import carried_bytes
from bertbench.dry_run.optimizer_state import state_bytes
from bertbench.loading.batch import Batch, batch_of, synthetic
from bertbench.model.attention import Attention, attention, flash_attention, flash_takes, plain_attention
from bertbench.model.bert import Bert
from bertbench.model.dropout import DropoutFunction, apply_dropout, plain_dropout
from bertbench.model.loss import cross_entropy_sum, plain_cross_entropy_sum
from bertbench.model.precision import autocast_type, computing
from bertbench.model.scores import Scores
from bertbench.model.shape import BertShape
from bertbench.optim.buckets import backward_order, bucket_table, owned
from bertbench.optim.gradient_sum import bytes_per_step


class CountedRank(NamedTuple):
    """What one rank holds and sends."""

    parameters: int
    bucket_elements: tuple[int, ...]
    """Elements of each gradient bucket, in the order of reduction."""
    optimizer_bytes: int
    warm_up_bytes: int
    """What the backward pass of a warm-up step keeps, all of whose sequences are as long as the model takes."""
    activation_bytes: int
    """The same of the part of training steps that was given."""
    bytes_per_step: int
    """What the rank hands over to sums of gradients."""


def count_rank(system: System, rank: int, lengths_S: NDArray[np.int64]) -> CountedRank:
    """Build rank `rank` of the system and take it through warm-up; then a part with sequences of these lengths."""
    size = system.local_batch // system.data.gradient_accumulation_steps
    warm_up = synthetic(size, system.model.max_positions, system.model.vocab_size, torch.Generator().manual_seed(1))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        model = Bert(system.model.shape())
    shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    buckets = _buckets(system, model, mode)
    sizes = tuple(sum(bucket) for bucket in buckets)
    options, ranks, sync = system.communication, system.world_size, system.sync
    return CountedRank(
        parameters=sum(math.prod(shape) for shape in shapes),
        bucket_elements=sizes,
        optimizer_bytes=_state_bytes(system, rank, buckets) + carried_bytes(sum(sizes), options, sync, ranks),
        warm_up_bytes=_kept_bytes(system, warm_up),
        activation_bytes=_kept_bytes(system, synthetic_batch(lengths_S)),
        bytes_per_step=bytes_per_step(options, shapes, sizes, ranks, sync),
    )


def _buckets(system: System, model: Bert, mode: FakeTensorMode) -> list[list[int]]:
    """Return the elements of each gradient in the buckets that a backward pass fills."""
    tiny = synthetic(1, 8, system.model.vocab_size, torch.Generator().manual_seed(1))
    with mode:
        order = backward_order(model, lambda: summed_loss(system, model, tiny).backward())
    table = bucket_table(order, system.communication.bucket_mb)
    return [[parameter.numel() for parameter in parameters] for parameters in table]


def _state_bytes(system: System, rank: int, buckets: list[list[int]]) -> int:
    """Bytes of the optimizer's state that the rank keeps."""
    options, averaged, shape = system.optimizer, system.optimizer.ema_decay > 0, system.model.shape()
    if not system.optimizer.sharded:
        return state_bytes(options, averaged, shape, sum(map(sum, buckets)))
    held = sum(owned(sizes, system.world_size, rank) for sizes in buckets)
    return state_bytes(options, averaged, shape, held, (rank, system.world_size))


def _kept_bytes(system: System, batch: Batch) -> int:
    """Bytes that a forward pass keeps for its backward pass, other than the weights themselves.

    All layers are alike, so those beyond the first each keep what the second adds.
    """
    one, two = (kept_by(system, replace(system.model.shape(), layers=layers), batch) for layers in (1, 2))
    return one + (system.model.layers - 1) * (two - one)


def kept_by(system: System, shape: BertShape, batch: Batch) -> int:
    """Bytes that a whole model's forward pass on the batch keeps for its backward pass."""

    def build() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        model = Bert(shape, *kernels(system))
        return model, lambda: summed_loss(system, model, batch)

    return kept_bytes(system, build)


def kept_bytes(system: System, build: Callable[[], tuple[nn.Module, Callable[[], torch.Tensor]]]) -> int:
    """Bytes that a forward pass on the system's device keeps for its backward pass, other than weights.

    `build` makes a module and what computes with it; all its tensors are fake.
    """
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    as_device = _AsCuda(system.precision.compute != "fp32") if system.launch.device == "cuda" else nullcontext()
    with FakeTensorMode(allow_non_fake_inputs=True), as_device:
        module, compute = build()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            compute()
    for parameter in module.parameters():
        kept.pop(parameter.untyped_storage()._cdata, None)
    return sum(storage.nbytes() for storage in kept.values())


def kernels(system: System) -> tuple[Attention, DropoutFunction]:
    """How the model of such a system does attention and dropout."""
    if system.launch.device == "cpu":
        return attention, apply_dropout
    return flash_attention if _flashes(system) else plain_attention, plain_dropout


def _flashes(system: System) -> bool:
    """Whether attention on the system's GPUs is the flash kernel's: its operator runs on fake tensors too."""
    dtype = autocast_type(system.precision.compute)
    width = system.model.hidden_size // system.model.attention_heads
    return system.launch.device == "cuda" and dtype is not None and flash_takes(dtype, width)


def summed_loss(system: System, model: Callable[..., Scores], batch: Batch) -> torch.Tensor:
    """Compute the trainer's loss, but for its weights."""
    with computing(system.precision.compute, torch.device("cpu")):
        scores = model(*batch.inputs)
    add_up = cross_entropy_sum if system.launch.device == "cpu" else plain_cross_entropy_sum
    return add_up(scores.masked_lm_MV, batch.masked_labels_M) + add_up(scores.next_sentence_S2, batch.next_sentence_S)


class _AsCuda(TorchFunctionMode):
    """What CUDA keeps and a CPU doesn't.

    Autocast computes softmax and LayerNorm in fp32 (torch.amp's op reference); dropout keeps bytes, not factors.
    A build of torch without CUDA can't differentiate even fake CUDA tensors, so they are CPU tensors treated so.
    """

    def __init__(self, autocasts: bool) -> None:
        super().__init__()
        self._autocasts = autocasts

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), options: dict[str, Any] | None = None
    ) -> Any:
        if self._autocasts and function in (torch.Tensor.softmax, functional.layer_norm):
            arguments = (arguments[0].float(), *arguments[1:])
        options = options or {}
        if function is functional.dropout and options["p"] > 0:
            return torch.native_dropout(arguments[0], options["p"], options["training"])[0]
        return function(*arguments, **options)


def synthetic_batch(lengths_S: NDArray[np.int64]) -> Batch:
    """Return sequences of these lengths with Wikipedia's share of masked tokens; content doesn't matter."""
    lengths = np.sort(lengths_S)[::-1]
    masked = predictions(lengths)
    tokens, total = np.zeros(lengths.sum(), np.int16), int(masked.sum())
    return batch_of(
        Columns(
            lengths=lengths,
            masked=masked,
            input_ids=tokens,
            segment_ids=tokens.astype(np.int8),
            masked_lm_positions=np.zeros(total, np.int16),
            masked_lm_ids=np.zeros(total, np.int16),
            next_sentence_labels=np.zeros(len(lengths), np.int8),
        )
    )
