"""Count what one rank of an absent world holds and sends, by the code that trains and without its tensors."""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from bertbench.config import System
from bertbench.config.optimizer import GRADIENT_BYTES, Communication, Compression, OptimizerSettings, Sync
from bertbench.dry_run.activations import Uninitialized
from bertbench.loading.batch import synthetic
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.optim.buckets import backward_order, bucket_table, owned
from bertbench.optim.gradient_sum import bytes_per_step
from bertbench.optim.matrices import deal

_NUMBER = 4  # bytes: all state is fp32


class CountedRank(NamedTuple):
    """What one rank holds and sends."""

    parameters: int
    bucket_elements: tuple[int, ...]
    """Elements of each gradient bucket, in the order of reduction."""
    optimizer_bytes: int
    bytes_per_step: int
    """What the rank hands over to sums of gradients."""


def count_rank(system: System, rank: int) -> CountedRank:
    """Count rank `rank` of a system whose ranks hold whole models."""
    buckets = _buckets(system)
    sizes = tuple(sum(math.prod(shape) for shape in bucket) for bucket in buckets)
    options, ranks, sync = system.communication, system.world_size, system.sync
    return CountedRank(
        parameters=sum(sizes),
        bucket_elements=sizes,
        optimizer_bytes=_state_bytes(system, rank, buckets) + carried_bytes(sum(sizes), options, sync, ranks),
        bytes_per_step=bytes_per_step(options, [shape for bucket in buckets for shape in bucket], sizes, ranks, sync),
    )


def _buckets(system: System) -> list[list[tuple[int, ...]]]:
    """Return the shapes of the gradients in the buckets that a backward pass fills.

    Their order depends on the model's structure alone, so a narrow model shows it.
    """
    shape = system.model.shape()
    with Uninitialized():
        narrow = Bert(replace(shape, vocab_size=8, hidden_size=shape.attention_heads, feed_forward_size=1))
        whole = list(Bert(shape).parameters())
    batch = synthetic(1, 8, 8, torch.Generator().manual_seed(1))

    def backward() -> None:
        scores = narrow(*batch.inputs)
        (scores.masked_lm_MV.sum() + scores.next_sentence_S2.sum()).backward()

    of_whole: dict[nn.Parameter, nn.Parameter] = dict(zip(narrow.parameters(), whole, strict=True))
    order = [of_whole[parameter] for parameter in backward_order(narrow, backward)]
    return [[tuple(gradient.shape) for gradient in bucket]
            for bucket in bucket_table(order, system.communication.bucket_mb)]  # fmt: skip


def _state_bytes(system: System, rank: int, buckets: list[list[tuple[int, ...]]]) -> int:
    """Return the bytes of the optimizer's state that the rank keeps."""
    averaged, shape, ranks = system.optimizer.ema_decay > 0, system.model.shape(), system.world_size
    sizes = [[math.prod(gradient) for gradient in bucket] for bucket in buckets]
    if not system.optimizer.sharded:
        return state_bytes(system.optimizer, averaged, shape, sum(map(sum, sizes)))
    held = sum(owned(bucket, ranks, rank) for bucket in sizes)
    return state_bytes(system.optimizer, averaged, shape, held, (rank, ranks))


def state_bytes(
    options: OptimizerSettings, averaged: bool, shape: BertShape, held: int, place: tuple[int, int] = (0, 1)
) -> int:
    """Return the bytes of state kept between steps by a rank whose optimizer holds `held` parameters.

    `place` is this rank and the number of ranks that share the state. Whole matrices are dealt to them as in training;
    Adam's remaining parameters count as an equal share a rank. `averaged` adds the average of the weights.
    """
    numbers = 2 * held  # two moments
    if options.name == "muon":
        rank, ranks = place
        matrices = encoder_shapes(shape)
        adam = held - sum(rows * columns for rows, columns in matrices) // ranks
        owners = deal(matrices, ranks)
        dealt = [matrix for matrix, owner in zip(matrices, owners, strict=True) if owner == rank]
        numbers = 2 * adam + sum(rows * columns for rows, columns in dealt)
    return _NUMBER * (numbers + (held if averaged else 0))


def encoder_shapes(shape: BertShape) -> list[tuple[int, int]]:
    """Return the shapes of the encoder's logical matrices, in the order of the model's parameters."""
    hidden, inner = shape.hidden_size, shape.feed_forward_size
    layer = [*[(hidden, hidden)] * 4, (inner, hidden), (hidden, inner)]
    return layer * shape.layers


def carried_bytes(parameters: int, options: Communication, sync: Sync, ranks: int) -> int:
    """Return the bytes that a rank keeps between steps besides weights, gradients and optimizer state.

    With local updates, a rank keeps the weights of the last outer step and its velocity; with delayed gradients, a ring
    of buffers; with int8 and top-k, the errors.
    """
    copies = 0.0
    if sync.outer is not None:
        _, momentum = sync.outer
        copies = 2 if momentum else 1
    elif sync.delay:
        copies = sync.delay + 1
    elif options.compression in ("int8", "topk"):
        copies = 1 + (1 / ranks if options.compression == "int8" else 0)
    return round(GRADIENT_BYTES * parameters * copies)


def link_bytes_per_step(
    handed_over: int, parameters: int, ranks: int, sharded: bool, compression: Compression = "none"
) -> int:
    """Return the bytes that one rank sends in a step with `handed_over` bytes in its sums, without buckets' padding.

    A ring all-reduce of n bytes over R ranks sends 2 (R - 1) / R n over each link, a reduce-scatter or an all-gather
    half of that: with sliced optimizer state, gradients take the one and fp32 weights the other. int8's all-to-all and
    all-gather send as much as a ring; top-k's all-gather forwards every rank's contribution.
    """
    if compression == "topk":
        return (ranks - 1) * handed_over
    gathered = GRADIENT_BYTES * parameters if sharded else handed_over
    return (ranks - 1) * (handed_over + gathered) // ranks
