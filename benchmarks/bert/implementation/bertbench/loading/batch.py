"""Read samples, check them, and gather them into one flat, unpadded batch: the only batch type there is.

Samples are checked because a shard may have been damaged since `data verify`. The check is cheap and finds samples that
no model could train on: sizes that differ from the index, ids and positions that are too large. It doesn't find
a wrong but valid token; checksums do (`data verify`).
Shapes: T tokens in the batch, S sequences, M masked tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from bertbench.common.errors import DataError
from bertbench.data.store.columns import Array, Columns, Integers, entries_of
from bertbench.data.store.manifest import Manifest
from bertbench.model.bert import BertInputs
from bertbench.model.loss import Labels
from bertbench.model.sequences import Sequences

if TYPE_CHECKING:  # benches make batches without h5py
    from bertbench.data.store.dataset import Dataset, MappedSamples


@dataclass(frozen=True)
class Batch:
    """S sequences, longest first, one after the other; nothing is padded."""

    tokens_T: Tensor
    """int32, like segments and positions: half the bytes of int64."""
    segments_T: Tensor
    positions_T: Tensor
    sequences: Sequences
    masked_at_M: Tensor
    """Places of the masked tokens in the flat batch."""
    masked_labels_M: Tensor
    next_sentence_S: Tensor

    @property
    def inputs(self) -> BertInputs:
        """Return what a model reads."""
        return BertInputs(self.tokens_T, self.segments_T, self.positions_T, self.sequences, self.masked_at_M)

    @property
    def labels(self) -> Labels:
        """Return the right answers for both heads."""
        return Labels(self.masked_labels_M, self.next_sentence_S)

    def to(self, device: torch.device) -> Batch:
        """Copy the batch to a device without waiting for it."""
        if device.type == "cpu":
            return self

        # Seven small copies in the loader's thread, two steps ahead of the device; 0.6 MB for 24,576 tokens.
        def copied(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True)

        return Batch(
            tokens_T=copied(self.tokens_T),
            segments_T=copied(self.segments_T),
            positions_T=copied(self.positions_T),
            sequences=Sequences(copied(self.sequences.cu_seqlens_S1), self.sequences.groups),
            masked_at_M=copied(self.masked_at_M),
            masked_labels_M=copied(self.masked_labels_M),
            next_sentence_S=copied(self.next_sentence_S),
        )

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory of a batch on a GPU until the work queued on `stream` so far is done."""
        for tensor in self.tensors:
            tensor.record_stream(stream)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Return its tensors, in the order of the fields."""
        return (
            self.tokens_T, self.segments_T, self.positions_T, self.sequences.cu_seqlens_S1,
            self.masked_at_M, self.masked_labels_M, self.next_sentence_S,
        )  # fmt: skip


def gather(samples: MappedSamples, ids: Integers, lengths: Integers, check: SampleCheck | None = None) -> Batch:
    """Read samples by id into a batch, longest first; `lengths` come from the index.

    With `check`, raises DataError for a damaged sample.
    """
    longest_first = ids[np.argsort(-lengths, kind="stable")]
    content = read_samples(samples, longest_first)
    if check is not None:
        check.require_valid(longest_first, content)
    return batch_of(content)


def read_samples(samples: MappedSamples, ids: Integers) -> Columns:
    """Read samples by id, in the order of the ids.

    Each field of a sample is copied as one slice. MLPerf has thousands of shards, and nearly every sample of a batch
    comes from a different one, so there is nothing to vectorise.
    """
    shard_of = samples.shards_of(ids)
    rows = ids - samples.first_ids[shard_of]
    tokens: list[memoryview] = []
    segments: list[memoryview] = []
    positions: list[memoryview] = []
    labels: list[memoryview] = []
    pairs: list[int] = []
    for number, row in zip(shard_of.tolist(), rows.tolist(), strict=True):
        shard = samples.shard(number).views
        of_tokens = slice(shard.offsets[row], shard.offsets[row + 1])
        of_masked = slice(shard.masked_offsets[row], shard.masked_offsets[row + 1])
        tokens.append(shard.input_ids[of_tokens])
        segments.append(shard.segment_ids[of_tokens])
        positions.append(shard.masked_lm_positions[of_masked])
        labels.append(shard.masked_lm_ids[of_masked])
        pairs.append(shard.next_sentence_labels[row])
    return Columns(
        lengths=np.array([len(field) for field in tokens]),
        masked=np.array([len(field) for field in positions]),
        input_ids=_joined(tokens, np.int16),
        segment_ids=_joined(segments, np.int8),
        masked_lm_positions=_joined(positions, np.int16),
        masked_lm_ids=_joined(labels, np.int16),
        next_sentence_labels=np.array(pairs, np.int8),
    )


def _joined(fields: list[memoryview], dtype: type[np.integer]) -> Array:
    return np.frombuffer(bytearray().join(fields), dtype)


def batch_of(content: Columns) -> Batch:
    """Make a batch of samples that are sorted, longest first."""
    lengths_S = content.lengths
    sequences = Sequences.of(lengths_S)
    starts_S = sequences.cu_seqlens_S1[:-1].numpy()
    return Batch(
        tokens_T=torch.from_numpy(content.input_ids.astype(np.int32)),
        segments_T=torch.from_numpy(content.segment_ids.astype(np.int32)),
        positions_T=positions_of(lengths_S),
        sequences=sequences,
        masked_at_M=torch.from_numpy(
            content.masked_lm_positions.astype(np.int64) + np.repeat(starts_S, content.masked)
        ),
        masked_labels_M=torch.from_numpy(content.masked_lm_ids.astype(np.int64)),
        next_sentence_S=torch.from_numpy(content.next_sentence_labels.astype(np.int64)),
    )


def positions_of(lengths_S: Array) -> Tensor:
    """Return each token's position in its own sequence: [T]."""
    starts_S = np.cumsum(lengths_S) - lengths_S
    positions_T = np.arange(lengths_S.sum()) - np.repeat(starts_S, lengths_S)
    return torch.from_numpy(positions_T.astype(np.int32))


def synthetic(sequences: int, length: int, vocab_size: int, generator: torch.Generator) -> Batch:
    """Make a batch of equal lengths; see `synthetic_of_lengths`."""
    return synthetic_of_lengths(np.full(sequences, length), vocab_size, generator)


def synthetic_of_lengths(lengths_S: Integers, vocab_size: int, generator: torch.Generator) -> Batch:
    """Make a batch for warm-up: random tokens, every seventh one masked."""
    total = int(lengths_S.sum())
    tokens_T = torch.randint(vocab_size, (total,), generator=generator, dtype=torch.int32)
    masked_at_M = torch.arange(0, total, 7)
    return Batch(
        tokens_T=tokens_T,
        segments_T=torch.zeros(total, dtype=torch.int32),
        positions_T=positions_of(lengths_S),
        sequences=Sequences.of(lengths_S),
        masked_at_M=masked_at_M,
        masked_labels_M=tokens_T[masked_at_M].long(),
        next_sentence_S=torch.zeros(len(lengths_S), dtype=torch.int64),
    )


class SampleCheck:
    """Check the samples of a dataset as they are read."""

    def __init__(self, dataset: Dataset, vocab_size: int) -> None:
        self._dataset = dataset
        self._entries_N = np.asarray(dataset.entries_N)  # the same memory without memmap's cost on every access
        self._vocab_size = vocab_size

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Return a check against the vocabulary of the dataset's manifest."""
        return cls(dataset, Manifest.read(dataset.folder).tokenizer.vocab_size)

    def require_valid(self, ids: Integers, content: Columns) -> None:
        """Raise DataError, which names the shard and the sample, unless the samples read for these ids are valid."""
        differs_S = entries_of(content.lengths, content.masked) != self._entries_N[ids]
        if differs_S.any():
            raise self._damaged(int(ids[differs_S.argmax()]), "a length or masked count that differs from the index")
        invalid = content.problem(self._vocab_size)
        if invalid is not None:
            raise self._damaged(int(ids[invalid.number]), invalid.fault)

    def _damaged(self, sample: int, fault: str) -> DataError:
        folder = self._dataset.folder
        samples = self._dataset.map_samples()
        shard = int(samples.shards_of(np.array(sample)))
        path = folder / self._dataset.name / self._dataset.split.shards[shard].name
        return DataError(
            f"{path}: sample {sample - samples.first_ids[shard]}: found {fault}; see `bertbench data verify {folder}` "
            "and prepare the data again"
        )
