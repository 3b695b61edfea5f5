"""The index of a split: length and masked count of every sample in 16 bits, memory-mapped.

MLPerf's 157 million samples take 313 MB, shared by the ranks of a node. It is metadata: it may be read before
the clock starts (MLPerf Training rules), and it is all that planning a step needs.
"""

import numpy as np
from numpy.typing import NDArray

INDEX_NAME = "index.npy"
_LENGTH_BITS = 9
MAX_LENGTH = 1 << _LENGTH_BITS  # stored as length - 1: 1 to 512 tokens
MAX_MASKED = (1 << (16 - _LENGTH_BITS)) - 1  # 127 masked tokens; MLPerf masks at most 76

Index = NDArray[np.uint16]
"""One entry a sample: masked count in the high 7 bits, length - 1 in the low 9."""


def pack(lengths: NDArray[np.integer], masked: NDArray[np.integer]) -> Index:
    """Return entries for samples of 1 to 512 tokens with at most 127 masked; raises ValueError outside these."""
    if lengths.size and not (lengths.min() >= 1 and lengths.max() <= MAX_LENGTH and masked.max() <= MAX_MASKED):
        raise ValueError(f"the index holds 1 to {MAX_LENGTH} tokens with at most {MAX_MASKED} masked")
    return entries_of(lengths, masked).astype(np.uint16)


def entries_of(lengths: NDArray[np.integer], masked: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return the entries of `pack` without its check; outside its limits the numbers are not valid entries."""
    return (masked << _LENGTH_BITS) | (lengths - 1)


def lengths_of(entries: Index) -> NDArray[np.int64]:
    """Return the tokens of each sample."""
    return (entries & np.uint16(MAX_LENGTH - 1)).astype(np.int64) + 1


def masked_of(entries: Index) -> NDArray[np.int64]:
    """Return the masked tokens of each sample."""
    return (entries >> np.uint16(_LENGTH_BITS)).astype(np.int64)


def offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return where each of several neighbouring runs of these lengths begins, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
