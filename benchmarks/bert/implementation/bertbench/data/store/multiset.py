"""Compute a digest of many samples in any order: equal digests mean the same samples, each the same number of times.

It is the number of samples, and the sum of their 128-bit BLAKE2b digests modulo 2^128. Two different multisets agree
by chance once in 2^128, but samples can be forged so that they agree. It needs memory for a few numbers only.
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from bertbench.data.store.columns import SAMPLE_FIELDS, Array, Columns

_BYTES = 16


@dataclass
class SampleMultiset:
    """The samples seen so far."""

    samples: int = 0
    tokens: int = 0
    masked: int = 0
    digest: int = 0

    def add(self, block: Columns) -> None:
        """Count more samples."""
        tokens = _bytes(block, "input_ids")
        segments = _bytes(block, "segment_ids")
        positions = _bytes(block, "masked_lm_positions")
        labels = _bytes(block, "masked_lm_ids")
        # lengths first: without them, samples of different lengths could give the same bytes
        heads = np.stack([block.lengths, block.masked, block.next_sentence_labels], axis=1).astype("<i2").tobytes()
        token = masked = 0  # where the sample begins
        total = self.digest
        for row, (length, count) in enumerate(zip(block.lengths.tolist(), block.masked.tolist(), strict=True)):
            next_token = token + length
            next_masked = masked + count
            sample = b"".join((
                heads[6 * row : 6 * row + 6],
                tokens[2 * token : 2 * next_token], segments[token:next_token],
                positions[2 * masked : 2 * next_masked], labels[2 * masked : 2 * next_masked],
            ))  # fmt: skip
            total += int.from_bytes(blake2b(sample, digest_size=_BYTES).digest(), "little")
            token = next_token
            masked = next_masked
        self.samples += len(block)
        self.tokens += token
        self.masked += masked
        self.digest = total % (1 << (8 * _BYTES))

    def __str__(self) -> str:
        return f"{self.digest:0{2 * _BYTES}x}"


def _bytes(block: Columns, name: str) -> bytes:
    """Return a field's values as shards store them."""
    values: Array = getattr(block, name)
    return values.astype(SAMPLE_FIELDS[name]).tobytes()
