"""Hold many samples as flat arrays, which readers, writers, shuffles and shards exchange, and their sizes in an index.

The index of a split holds the length and the masked count of every sample in 16 bits, and is memory-mapped. For
MLPerf's 157 million samples it takes 313 MB, which the ranks of a node share. It is metadata, so it may be read before
the clock starts (MLPerf Training rules), and it is all that planning a step needs.
Shapes: N samples, T tokens in all of them, M masked tokens in all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

INDEX_NAME = "index.npy"
_LENGTH_BITS = 9
MAX_LENGTH = 1 << _LENGTH_BITS  # stored as length - 1: 1 to 512 tokens
MAX_MASKED = (1 << (16 - _LENGTH_BITS)) - 1  # 127 masked tokens; MLPerf masks at most 76

Index = NDArray[np.uint16]
"""One entry per sample: the masked count in the high 7 bits, length - 1 in the low 9."""

Array = NDArray[np.integer]
Integers = NDArray[np.int64]
"""Such as lengths, ids and ranks."""
Floats = NDArray[np.float64]
"""Such as costs, loads and speeds."""
Flags = NDArray[np.bool_]
SAMPLE_FIELDS: dict[str, np.dtype[Any]] = {
    "input_ids": np.dtype("<i2"),
    "segment_ids": np.dtype("i1"),
    "masked_lm_positions": np.dtype("<i2"),
    "masked_lm_ids": np.dtype("<i2"),
    "next_sentence_labels": np.dtype("i1"),
}
"""The fields of a shard's samples, in the order in which they are written; the names are MLPerf's."""
SHARD_FIELDS = {"offsets": np.dtype("<i8"), "masked_offsets": np.dtype("<i8"), **SAMPLE_FIELDS}
"""The HDF5 datasets of a shard, in the order in which they are written."""


class InvalidSample(NamedTuple):
    """A sample that no model could train on."""

    number: int
    """Its place among the samples that were checked."""
    fault: str
    """What was found, and what was expected."""


@dataclass(frozen=True)
class Columns:
    """N samples, one after the other in every array; the field names are MLPerf's."""

    lengths: Array
    """[N] tokens of each sample."""
    masked: Array
    """[N] masked tokens of each sample."""
    input_ids: Array
    """[T] int16."""
    segment_ids: Array
    """[T] int8."""
    masked_lm_positions: Array
    """[M] int16, counted from the start of the sample."""
    masked_lm_ids: Array
    """[M] int16."""
    next_sentence_labels: Array
    """[N] int8."""

    @classmethod
    def joined(cls, blocks: Sequence["Columns"]) -> Self:
        """Join blocks in their order; at least one is needed."""
        columns: dict[str, Array] = {}
        for field in fields(cls):
            columns[field.name] = np.concatenate([getattr(block, field.name) for block in blocks])
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Integers) -> "Columns":
        """Return the samples at these rows, in this order."""
        tokens = places_of_spans((np.cumsum(self.lengths) - self.lengths)[rows], self.lengths[rows])
        masked = places_of_spans((np.cumsum(self.masked) - self.masked)[rows], self.masked[rows])
        return self._picked(rows, tokens, masked)

    def split(self, samples: int) -> Iterator["Columns"]:
        """Yield consecutive blocks of `samples` each, uncopied; the last may be smaller."""
        token_offsets = offsets(self.lengths)
        masked_offsets = offsets(self.masked)
        for start in range(0, len(self), samples):
            stop = min(start + samples, len(self))
            tokens = slice(token_offsets[start], token_offsets[stop])
            masked = slice(masked_offsets[start], masked_offsets[stop])
            yield self._picked(slice(start, stop), tokens, masked)

    def _picked(self, samples: Any, tokens: Any, masked: Any) -> "Columns":
        return Columns(
            lengths=self.lengths[samples],
            masked=self.masked[samples],
            input_ids=self.input_ids[tokens],
            segment_ids=self.segment_ids[tokens],
            masked_lm_positions=self.masked_lm_positions[masked],
            masked_lm_ids=self.masked_lm_ids[masked],
            next_sentence_labels=self.next_sentence_labels[samples],
        )

    def problem(self, vocab_size: int) -> InvalidSample | None:
        """Return the first sample that no model could train on; None if all are valid."""
        one_each = np.ones_like(self.lengths)
        tokens = self.lengths
        masked = self.masked
        ids = f"0 to {vocab_size - 1}"
        beyond = np.repeat(self.lengths, self.masked)
        checks = (
            _Check(one_each, self.lengths, _outside(self.lengths - 1, MAX_LENGTH), "{} tokens", f"1 to {MAX_LENGTH}"),
            _Check(
                one_each, self.masked, _outside(self.masked - 1, MAX_MASKED), "{} masked tokens", f"1 to {MAX_MASKED}"
            ),
            _Check(tokens, self.input_ids, _outside(self.input_ids, vocab_size), "token id {}", ids),
            _Check(tokens, self.segment_ids, _outside(self.segment_ids, 2), "segment id {}", "0 or 1"),
            _Check(
                masked,
                self.masked_lm_positions,
                _outside(self.masked_lm_positions, beyond),
                "masked position {}",
                "at least 0 and less than the sample's length",
            ),
            _Check(masked, self.masked_lm_ids, _outside(self.masked_lm_ids, vocab_size), "masked token's id {}", ids),
            _Check(
                one_each,
                self.next_sentence_labels,
                _outside(self.next_sentence_labels, 2),
                "next-sentence label {}",
                "0 or 1",
            ),
        )
        invalid = [check.first_invalid() for check in checks if check.bad.any()]
        return min(invalid, key=lambda sample: sample.number, default=None)  # of one sample, the first fault


class _Check(NamedTuple):
    """The check of one field: V values, which belong to N samples."""

    counts: Array
    """[N] values of each sample."""
    values: Array
    """[V]"""
    bad: Flags
    """[V]"""
    found: str
    """Names a value, which replaces the braces."""
    expected: str

    def first_invalid(self) -> InvalidSample:
        """Return the sample of the first bad value; there is one."""
        place = int(np.argmax(self.bad))
        sample = int(np.searchsorted(np.cumsum(self.counts), place, side="right"))
        return InvalidSample(sample, f"{self.found.format(self.values[place])}, expected {self.expected}")


def _outside(values: Array, limits: Any) -> Flags:
    """Return whether each value is below 0 or not below its limit; as unsigned numbers, negative ones are too large."""
    return values.view(values.dtype.str.replace("i", "u")) >= limits


def offsets(lengths: Array) -> Integers:
    """Return where each of several consecutive runs of these lengths begins, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def places_of_spans(starts: Array, lengths: Array) -> Integers:
    """Return the places start, start + 1, ... start + length - 1 of every item, one item after the other."""
    counts = lengths.astype(np.int64)
    ends_in_answer = np.cumsum(counts)
    starts_in_answer = ends_in_answer - counts
    total = ends_in_answer[-1] if len(ends_in_answer) else 0
    shift_of_each_place = np.repeat(starts - starts_in_answer, counts)
    return shift_of_each_place + np.arange(total)


def pack(lengths: Array, masked: Array) -> Index:
    """Return entries for samples of 1 to 512 tokens with at most 127 masked; raises ValueError outside these."""
    if lengths.size and (lengths.min() < 1 or lengths.max() > MAX_LENGTH or masked.max() > MAX_MASKED):
        raise ValueError(f"the index holds 1 to {MAX_LENGTH} tokens with at most {MAX_MASKED} masked")
    return entries_of(lengths, masked).astype(np.uint16)


def entries_of(lengths: Array, masked: Array) -> Array:
    """Return the entries of `pack` without its check; outside its limits the numbers are not valid entries."""
    return (masked << _LENGTH_BITS) | (lengths - 1)


def lengths_of(entries: Index) -> Integers:
    """Return the number of tokens of each sample."""
    return (entries & np.uint16(MAX_LENGTH - 1)).astype(np.int64) + 1


def masked_of(entries: Index) -> Integers:
    """Return the number of masked tokens of each sample."""
    return (entries >> np.uint16(_LENGTH_BITS)).astype(np.int64)
