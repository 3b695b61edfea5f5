"""Gather samples into one flat, unpadded batch: the only batch type there is.

Shapes: T tokens in the batch, S sequences, M masked tokens.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bertbench.data.dataset import MappedSamples
from bertbench.model.sequences import EqualLengths, Sequences


@dataclass(frozen=True)
class Batch:
    """S sequences, longest first, one after the other; nothing is padded."""

    tokens_T: torch.Tensor
    segments_T: torch.Tensor
    positions_T: torch.Tensor
    sequences: Sequences
    masked_at_M: torch.Tensor
    """Places of the masked tokens in the flat batch."""
    masked_labels_M: torch.Tensor
    next_sentence_S: torch.Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; copies don't wait for the device."""
        if device.type == "cpu":
            return self

        def move(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.pin_memory().to(device, non_blocking=True)

        return Batch(
            move(self.tokens_T),
            move(self.segments_T),
            move(self.positions_T),
            Sequences(move(self.sequences.cu_seqlens_S1), self.sequences.groups),
            move(self.masked_at_M),
            move(self.masked_labels_M),
            move(self.next_sentence_S),
        )


def gather(samples: MappedSamples, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Batch:
    """Read samples by id into a batch, longest first; `lengths` are theirs, from the index."""
    order = np.argsort(-lengths, kind="stable")
    ids, lengths_S = ids[order], lengths[order]
    shard_of = np.searchsorted(samples.first_ids, ids, side="right") - 1
    row = ids - samples.first_ids[shard_of]
    parts: dict[str, list[NDArray[np.integer]]] = {}
    masked_counts = []
    for number, at in zip(shard_of, row, strict=True):
        shard = samples.shards[number]
        tokens = slice(shard.offsets[at], shard.offsets[at + 1])
        masked = slice(shard.masked_offsets[at], shard.masked_offsets[at + 1])
        masked_counts.append(masked.stop - masked.start)
        for name, where in (
            ("input_ids", tokens),
            ("segment_ids", tokens),
            ("masked_lm_positions", masked),
            ("masked_lm_ids", masked),
            ("next_sentence_labels", slice(at, at + 1)),
        ):
            parts.setdefault(name, []).append(shard.fields[name][where])
    flat = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    sequences = Sequences.of(lengths_S)
    starts_S = sequences.cu_seqlens_S1[:-1].numpy().astype(np.int64)
    return Batch(
        tokens_T=torch.from_numpy(flat["input_ids"].astype(np.int64)),
        segments_T=torch.from_numpy(flat["segment_ids"].astype(np.int64)),
        positions_T=torch.from_numpy(np.arange(lengths_S.sum()) - np.repeat(starts_S, lengths_S)),
        sequences=sequences,
        masked_at_M=torch.from_numpy(flat["masked_lm_positions"] + np.repeat(starts_S, masked_counts)),
        masked_labels_M=torch.from_numpy(flat["masked_lm_ids"].astype(np.int64)),
        next_sentence_S=torch.from_numpy(flat["next_sentence_labels"].astype(np.int64)),
    )


def synthetic(sequences: int, length: int, vocab_size: int, generator: torch.Generator) -> Batch:
    """A made-up batch for warm-up: equal lengths, random tokens, every seventh one masked."""
    total = sequences * length
    tokens_T = torch.randint(vocab_size, (total,), generator=generator)
    masked_at_M = torch.arange(0, total, 7)
    return Batch(
        tokens_T=tokens_T,
        segments_T=torch.zeros(total, dtype=torch.int64),
        positions_T=torch.arange(length).repeat(sequences),
        sequences=Sequences(
            torch.arange(0, total + 1, length, dtype=torch.int32), (EqualLengths(0, sequences, length),)
        ),
        masked_at_M=masked_at_M,
        masked_labels_M=tokens_T[masked_at_M],
        next_sentence_S=torch.zeros(sequences, dtype=torch.int64),
    )
