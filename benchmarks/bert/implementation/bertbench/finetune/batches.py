"""Assign a global batch of features to ranks, unpadded.

Shapes: T tokens in the batch, S sequences.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertbench.balance.assignment import assign_by_cost
from bertbench.balance.cost import CostModel
from bertbench.common.seeding import permuted
from bertbench.data.store.columns import Columns, Integers
from bertbench.finetune.features import Feature
from bertbench.loading.batch import Batch, batch_of
from bertbench.model.shape import BatchCounts


class SpanBatch(NamedTuple):
    """Sequences, and the places of their answers in the flat batch."""

    batch: Batch
    starts_S: Tensor
    ends_S: Tensor

    def to(self, device: torch.device) -> "SpanBatch":
        """Copy the batch to a device."""
        return SpanBatch(self.batch.to(device), self.starts_S.to(device), self.ends_S.to(device))


class Share(NamedTuple):
    """One rank's part of a step."""

    batch: SpanBatch
    weight: float
    """Weight of a sequence's loss: one over the global batch. A rank without features computes another rank's with
    weight 0, because all ranks take part in every step."""
    load_efficiency: float
    """Mean cost of the ranks' shares over the largest."""
    counts: BatchCounts
    """Tokens of all ranks' shares."""


def span_batch(features: Sequence[Feature]) -> SpanBatch:
    """Return one flat batch of features, given longest first."""
    lengths_S = np.array([feature.length for feature in features])
    none_S, no_tokens = np.zeros(len(features), np.int64), np.zeros(0, np.int64)
    batch = batch_of(
        Columns(
            lengths=lengths_S,
            masked=none_S,
            input_ids=np.concatenate([feature.tokens_N for feature in features]),
            segment_ids=np.concatenate([np.arange(feature.length) >= feature.first for feature in features]),
            masked_lm_positions=no_tokens,
            masked_lm_ids=no_tokens,
            next_sentence_labels=none_S,
        )
    )
    first_S = batch.sequences.cu_seqlens_S1[:-1].long()
    return SpanBatch(
        batch,
        first_S + torch.tensor([feature.start for feature in features]),
        first_S + torch.tensor([feature.end for feature in features]),
    )


def share_of(features: Sequence[Feature], ids: Integers, cost: CostModel, rank: int, ranks: int) -> Share:
    """Return this rank's share of the global batch `ids`, assigned by cost; every rank computes the same assignment."""
    lengths = np.array([features[number].length for number in ids])
    rank_of = assign_by_cost(lengths[None], ranks, cost.of_length, equal_counts=False)[0]
    loads = np.bincount(rank_of, cost.of_length[lengths], minlength=ranks)
    mine = ids[rank_of == rank]
    chosen = ids_longest_first(features, mine if mine.size else ids[:1])
    return Share(
        span_batch([features[number] for number in chosen]),
        1 / len(ids) if mine.size else 0.0,
        float(loads.mean() / loads.max()),
        BatchCounts.of_sequences(lengths, masked=0),
    )


def ids_longest_first(features: Sequence[Feature], ids: Integers) -> Integers:
    """Return the ids by falling length of their features."""
    return ids[np.argsort([-features[number].length for number in ids], kind="stable")]


def epoch_batches(features: int, batch_size: int, seed: int) -> list[Integers]:
    """Return every feature once, in random order, as global batches; the last one may be smaller."""
    order = permuted(np.arange(features), features, seed)
    return [order[start : start + batch_size] for start in range(0, features, batch_size)]
