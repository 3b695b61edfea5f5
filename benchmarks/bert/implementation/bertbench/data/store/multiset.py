"""Compute an order-free digest of many samples: equal digests mean the same samples, equally often.

It is the number of samples, and the sum of their 128-bit BLAKE2b digests modulo 2^128. Two different multisets agree
by chance once in 2^128; it doesn't resist forged samples. It keeps a few numbers.
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from bertbench.data.store.columns import FIELDS, Columns

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
        tokens, segments, positions, labels = (
            getattr(block, name).astype(FIELDS[name]).tobytes()
            for name in ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids")
        )
        # lengths first: without them, samples of different lengths could give the same bytes
        heads = np.stack([block.lengths, block.masked, block.next_sentence_labels], axis=1).astype("<i2").tobytes()
        token, masked, total = 0, 0, self.digest
        for row, (length, count) in enumerate(zip(block.lengths.tolist(), block.masked.tolist(), strict=True)):
            next_token, next_masked = token + length, masked + count
            sample = b"".join((
                heads[6 * row : 6 * row + 6],
                tokens[2 * token : 2 * next_token], segments[token:next_token],
                positions[2 * masked : 2 * next_masked], labels[2 * masked : 2 * next_masked],
            ))  # fmt: skip
            total += int.from_bytes(blake2b(sample, digest_size=_BYTES).digest(), "little")
            token, masked = next_token, next_masked
        self.samples += len(block)
        self.tokens += token
        self.masked += masked
        self.digest = total % (1 << (8 * _BYTES))

    def __str__(self) -> str:
        return f"{self.digest:0{2 * _BYTES}x}"
