"""Assign a global batch of features to ranks and to their parts, without padding.

Shapes: T tokens in the batch, S sequences.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertbench.balance.assignment import assign_by_cost
from bertbench.balance.cost import CostModel
from bertbench.common.seeding import permuted
from bertbench.config.layout import Layout
from bertbench.data.store.columns import Columns, Integers
from bertbench.finetune.features import Feature
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.loader import LoadedPart, LoadedStep
from bertbench.loading.sampler import Part
from bertbench.model.shape import BatchCounts


@dataclass(frozen=True)
class SpanBatch(Batch):
    """Sequences without masked tokens, and the places of their answers in the flat batch."""

    starts_S: Tensor
    ends_S: Tensor
    weight: float
    """Factor on the sum of the sequences' losses: the weighted losses of all parts of all ranks add up to the mean."""

    @classmethod
    def of(cls, batch: Batch, starts_S: Tensor, ends_S: Tensor, weight: float) -> "SpanBatch":
        """Return a batch with answers."""
        return cls(
            tokens_T=batch.tokens_T,
            segments_T=batch.segments_T,
            positions_T=batch.positions_T,
            sequences=batch.sequences,
            masked_at_M=batch.masked_at_M,
            masked_labels_M=batch.masked_labels_M,
            next_sentence_S=batch.next_sentence_S,
            starts_S=starts_S,
            ends_S=ends_S,
            weight=weight,
        )

    def to(self, device: torch.device) -> "SpanBatch":
        """Copy the batch to a device."""
        if device.type == "cpu":
            return self
        return SpanBatch.of(super().to(device), self.starts_S.to(device), self.ends_S.to(device), self.weight)


def span_batch(features: Sequence[Feature], weight: float = 0.0) -> SpanBatch:
    """Return one flat batch of features, which must be sorted, longest first. With weight 0, its loss doesn't count."""
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
    starts_S = first_S + torch.tensor([feature.start for feature in features])
    ends_S = first_S + torch.tensor([feature.end for feature in features])
    return SpanBatch.of(batch, starts_S, ends_S, weight)


def loaded(ids: Integers, batch: SpanBatch) -> LoadedPart:
    """Return a batch in the form that trainers take.

    It has no masked tokens or sentence pairs: their losses weigh 0.
    """
    return LoadedPart(Part(ids, masked_lm_weight=0.0, next_sentence_weight=0.0), batch)


@dataclass(frozen=True)
class SpanSampler:
    """Assigns a step's features to data-parallel ranks by cost, and a rank's share to its parts.

    Every rank computes the same plan. A rank or a part without a feature computes another part's feature with weight 0,
    so that all ranks take part in every step, with the same number of passes.
    """

    features: Sequence[Feature]
    cost: CostModel
    layout: Layout
    parts: int
    """Number of forward and backward passes per step on each rank."""

    def step(self, ids: Integers, rank: int) -> LoadedStep:
        """Return the parts of the global batch `ids` for data-parallel rank `rank`, in main memory."""
        lengths = self._lengths(ids)
        rank_of = self._rank_of(ids)
        loads = np.bincount(rank_of, self.cost.of_length[lengths], minlength=self.layout.data)
        parts = []
        for piece in self._pieces(ids, rank):
            chosen = ids_longest_first(self.features, piece if piece.size else ids[:1])
            weight = 1 / len(ids) if piece.size else 0.0
            parts.append(loaded(chosen, span_batch([self.features[number] for number in chosen], weight)))
        return LoadedStep(
            parts,
            float(loads.mean() / loads.max()),
            counts=BatchCounts.of_sequences(lengths, masked=0),
        )

    def budget(self, steps: Iterable[Integers], rank: int) -> int:
        """Return the tokens of a rank's largest part in these steps: a pipeline fills every part up to that size.

        Without a pipeline, return 0, because no part is filled up.
        """
        largest = 0
        if self.layout.pipeline == 1:
            return largest
        for ids in steps:
            for piece in self._pieces(ids, rank):
                chosen = piece if piece.size else ids[:1]
                largest = max(largest, int(self._lengths(chosen).sum()))
        return largest

    def _pieces(self, ids: Integers, rank: int) -> list[Integers]:
        """Return the ids of each part of a rank; some may be empty."""
        mine = ids[self._rank_of(ids) == rank]
        if self.layout.pipeline == 1 or not mine.size:
            return np.array_split(mine, self.parts)
        lengths_1S = self._lengths(mine)[None]
        tokens = np.arange(lengths_1S.max() + 1, dtype=np.float64)
        (part_S,) = assign_by_cost(lengths_1S, self.parts, tokens, equal_counts=False)
        return [mine[part_S == part] for part in range(self.parts)]

    def _rank_of(self, ids: Integers) -> Integers:
        (rank_of,) = assign_by_cost(self._lengths(ids)[None], self.layout.data, self.cost.of_length, equal_counts=False)
        return rank_of

    def _lengths(self, ids: Integers) -> Integers:
        return np.array([self.features[number].length for number in ids])


def ids_longest_first(features: Sequence[Feature], ids: Integers) -> Integers:
    """Return the ids sorted by the length of their features, longest first."""
    return ids[np.argsort([-features[number].length for number in ids], kind="stable")]


def epoch_batches(features: int, batch_size: int, seed: int) -> list[Integers]:
    """Return every feature once, in random order, as global batches; the last one may be smaller."""
    order = permuted(np.arange(features), features, seed)
    return [order[start : start + batch_size] for start in range(0, features, batch_size)]
