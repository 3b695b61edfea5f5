"""Count what one rank of a run holds and sends, without the other ranks: by the code that trains, without memory."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from bertbench.config import System
from bertbench.config.optimizer import GRADIENT_BYTES, Communication, OptimizerSettings, Sync
from bertbench.gradients.buckets import backward_order, bucket_table, owned
from bertbench.gradients.gradient_sum import bytes_per_step
from bertbench.loading.batch import synthetic
from bertbench.model.bert import Bert
from bertbench.model.shape import BertShape
from bertbench.optim.matrices import assign_owners
from bertbench.plan.parallel_theory import stage_parameters

_NUMBER = 4  # bytes of a number: all state is fp32


class CountedRank(NamedTuple):
    """What one rank holds and sends."""

    parameters: int
    bucket_elements: tuple[int, ...]
    """Elements of each gradient bucket, in the order of reduction."""
    optimizer_bytes: int
    bytes_per_step: int
    """The bytes of gradients that the rank sums with other ranks in a step."""


def count_rank(system: System, rank: int) -> CountedRank:
    """Count for rank `rank`; a part of a split model counts as one bucket."""
    if system.parallel.splits:
        held = stage_parameters(system.model.shape(), system.layout, system.layout.coordinate(rank))
        if system.parallel.fully_shard:
            held //= system.layout.data
        return CountedRank(held, (held,), 2 * _NUMBER * held, GRADIENT_BYTES * held)
    communication = system.communication
    ranks = system.world_size
    buckets = _buckets(system)
    shapes = [shape for bucket in buckets for shape in bucket]
    elements = [list(map(math.prod, bucket)) for bucket in buckets]
    bucket_elements = tuple(map(sum, elements))
    sharing = ranks if system.optimizer.sharded else 1
    slice_number = rank % sharing
    held = sum(owned(bucket, sharing, slice_number) for bucket in elements)
    state = state_bytes(system.optimizer, system.model.shape(), held, (slice_number, sharing))
    parameters = sum(bucket_elements)
    return CountedRank(
        parameters=parameters,
        bucket_elements=bucket_elements,
        optimizer_bytes=state + carried_bytes(parameters, communication, system.sync, ranks),
        bytes_per_step=bytes_per_step(communication, shapes, bucket_elements, ranks, system.sync),
    )


def _buckets(system: System) -> list[list[tuple[int, ...]]]:
    """Return the shapes of the gradients in each bucket that a backward pass fills.

    The order of gradients depends only on the model's structure, so a narrow model is enough to find it.
    """
    shape = system.model.shape()
    narrow = Bert(replace(shape, vocab_size=8, hidden_size=shape.attention_heads, feed_forward_size=1))
    with torch.device("meta"):
        full = Bert(shape)
    batch = synthetic(1, 8, 8, torch.Generator().manual_seed(1))

    def backward() -> None:
        scores = narrow(*batch.inputs)
        (scores.masked_lm_MV.sum() + scores.next_sentence_S2.sum()).backward()

    in_full: dict[nn.Parameter, nn.Parameter] = dict(zip(narrow.parameters(), full.parameters(), strict=True))
    order = [in_full[parameter] for parameter in backward_order(narrow, backward)]
    shapes = []
    for bucket in bucket_table(order, system.communication.bucket_mb, system.communication.buckets):
        shapes.append([tuple(parameter.shape) for parameter in bucket])
    return shapes


def state_bytes(options: OptimizerSettings, shape: BertShape, held: int, place: tuple[int, int] = (0, 1)) -> int:
    """Return the bytes of state that a rank keeps between steps if its optimizer holds `held` parameters.

    `place` holds this rank and the number of ranks that share the state. Muon's whole matrices are assigned to ranks as
    in training; the parameters that Adam updates count as an equal share for each rank. An average of the weights is
    included.
    """
    numbers = 2 * held  # two moments
    if options.ema_decay:
        numbers += held
    if options.name == "muon":  # a matrix has one moment, and a rank keeps the whole moments of its matrices
        rank, ranks = place
        hidden, inner = shape.hidden_size, shape.feed_forward_size
        of_layer = [(hidden, hidden)] * 4 + [(inner, hidden), (hidden, inner)]  # query, key, value, output
        matrices = of_layer * shape.layers
        sizes = np.prod(matrices, axis=1)
        is_ours = np.array(assign_owners(matrices, ranks)) == rank
        equal_share = int(sizes.sum() // ranks)
        numbers += int(sizes[is_ours].sum()) - 2 * equal_share
    return _NUMBER * numbers


def carried_bytes(parameters: int, options: Communication, sync: Sync, ranks: int) -> int:
    """Return the bytes that a rank keeps between steps in addition to weights, gradients and optimizer state.

    With local updates, a rank keeps the weights after the last outer step, and its velocity. With delayed gradients, it
    keeps a ring of buffers; with bf16 and fp16, the rounded gradient; with int8 and top-k, the compression errors.
    """
    copies: float = 0
    if sync.outer is not None:
        _, momentum = sync.outer
        copies = 2 if momentum else 1
    elif sync.delay:
        copies = sync.delay + 1
    elif options.compression in ("bf16", "fp16"):
        copies = 1 / 2  # the gradient that is sent
    elif options.compression == "topk":
        copies = 1
    elif options.compression == "int8":
        copies = 1 + 1 / ranks  # errors of the rank's own gradient, and of the part that it sums
    return round(GRADIENT_BYTES * parameters * copies)
