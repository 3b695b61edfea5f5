"""Hold many samples as flat arrays, which readers, writers, shuffles and shards exchange.

Shapes: N samples, T tokens in all of them, M masked tokens in all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bertbench.data.store.index import MAX_LENGTH, MAX_MASKED

Array = NDArray[np.integer]


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
        return cls(*(np.concatenate([getattr(block, field.name) for block in blocks]) for field in fields(cls)))

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: NDArray[np.int64]) -> "Columns":
        """Return the samples at these rows, in this order."""
        lengths, masked_counts = self.lengths[rows], self.masked[rows]
        tokens = spans((np.cumsum(self.lengths) - self.lengths)[rows], lengths)
        masked = spans((np.cumsum(self.masked) - self.masked)[rows], masked_counts)
        return Columns(
            lengths=lengths,
            masked=masked_counts,
            input_ids=self.input_ids[tokens],
            segment_ids=self.segment_ids[tokens],
            masked_lm_positions=self.masked_lm_positions[masked],
            masked_lm_ids=self.masked_lm_ids[masked],
            next_sentence_labels=self.next_sentence_labels[rows],
        )

    def split(self, samples: int, first: int = 0) -> Iterator["Columns"]:
        """Yield consecutive blocks of `samples` each, from number `first` on, uncopied; the last may be smaller."""
        tokens, masked = np.concatenate(([0], np.cumsum(self.lengths))), np.concatenate(([0], np.cumsum(self.masked)))
        for start in range(first, len(self), samples):
            stop = min(start + samples, len(self))
            of_tokens, of_masked = slice(tokens[start], tokens[stop]), slice(masked[start], masked[stop])
            yield Columns(
                lengths=self.lengths[start:stop],
                masked=self.masked[start:stop],
                input_ids=self.input_ids[of_tokens],
                segment_ids=self.segment_ids[of_tokens],
                masked_lm_positions=self.masked_lm_positions[of_masked],
                masked_lm_ids=self.masked_lm_ids[of_masked],
                next_sentence_labels=self.next_sentence_labels[start:stop],
            )

    def problem(self, vocab_size: int, max_length: int = MAX_LENGTH) -> tuple[int, str] | None:
        """Return the first sample that no model could train on, and its fault; None if all are sound."""
        starts_of_masked = np.repeat(self.lengths, self.masked)
        token_row, masked_row = (
            np.repeat(np.arange(len(self)), self.lengths),
            np.repeat(np.arange(len(self)), self.masked),
        )
        checks: tuple[tuple[Any, Any, str], ...] = (
            (np.arange(len(self)), (self.lengths < 1) | (self.lengths > max_length), f"not 1 to {max_length} tokens"),
            (
                np.arange(len(self)),
                (self.masked < 1) | (self.masked > MAX_MASKED),
                f"not 1 to {MAX_MASKED} masked tokens",
            ),
            (
                token_row,
                (self.input_ids < 0) | (self.input_ids >= vocab_size),
                f"a token id outside 0 to {vocab_size - 1}",
            ),
            (token_row, (self.segment_ids < 0) | (self.segment_ids > 1), "a segment id other than 0 and 1"),
            (
                masked_row,
                (self.masked_lm_positions < 0) | (self.masked_lm_positions >= starts_of_masked),
                "a masked position beyond the sample's length",
            ),
            (
                masked_row,
                (self.masked_lm_ids < 0) | (self.masked_lm_ids >= vocab_size),
                f"a label outside 0 to {vocab_size - 1}",
            ),
            (
                np.arange(len(self)),
                (self.next_sentence_labels < 0) | (self.next_sentence_labels > 1),
                "a next-sentence label other than 0 and 1",
            ),
        )
        found = [(int(rows[np.argmax(bad)]), text) for rows, bad, text in checks if bad.any()]
        return min(found, key=lambda problem: problem[0], default=None)  # the first check of equals


def spans(starts: Array, lengths: Array) -> NDArray[np.int64]:
    """Return the places start, start + 1, ... start + length - 1 of every item, one item after the other."""
    counts = lengths.astype(np.int64)
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
