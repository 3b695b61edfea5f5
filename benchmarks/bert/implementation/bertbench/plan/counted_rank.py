"""Count what one rank of a run holds and sends, without the other ranks: by the code that trains, without memory."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from bertbench.config import System
from bertbench.config.optimizer import GRADIENT_BYTES, Compression, OptimizerSettings
from bertbench.gradients.buckets import backward_order, bucket_table, owned
from bertbench.gradients.gradient_sum import ELEMENT_SUMS
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
    compression = system.communication.compression
    elements = [list(map(math.prod, bucket)) for bucket in _buckets(system)]
    bucket_elements = tuple(map(sum, elements))
    sharing = system.world_size if system.optimizer.sharded else 1
    slice_number = rank % sharing
    held = sum(owned(bucket, sharing, slice_number) for bucket in elements)
    state = state_bytes(system.optimizer, system.model.shape(), held, (slice_number, sharing))
    parameters = sum(bucket_elements)
    return CountedRank(
        parameters=parameters,
        bucket_elements=bucket_elements,
        optimizer_bytes=state + sent_copy_bytes(parameters, compression),
        bytes_per_step=ELEMENT_SUMS[compression].element_bytes * parameters,
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


def sent_copy_bytes(parameters: int, compression: Compression) -> int:
    """Return the bytes of the rounded gradient, which a rank keeps beside its gradient to send it in 16 bits."""
    return 0 if compression == "none" else ELEMENT_SUMS[compression].element_bytes * parameters
