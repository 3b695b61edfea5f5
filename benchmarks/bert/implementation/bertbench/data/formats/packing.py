"""Choose the samples of each packed row by lengths alone: few rows, little padding.

The longest remaining sample starts a row; two more fill its gap as fully as two can. Two short samples precede one
that fits exactly: half of Wikipedia's lengths are below 204, so rows must hold three samples if possible. With the
exact one first, 10 % of the rows' tokens stay empty instead of 1 %. Deterministic; samples of one length keep their
order.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray


def pack(lengths: NDArray[np.int64], row_length: int) -> list[list[int]]:
    """Return rows of 1 to 3 sample numbers, at most `row_length` tokens each, in the order of their first sample.

    Raises ValueError if a sample is empty or longer than a row.
    """
    if lengths.size and not (lengths.min() >= 1 and lengths.max() <= row_length):
        raise ValueError(f"found samples of {lengths.min()} to {lengths.max()} tokens, rows hold 1 to {row_length}")
    waiting = [deque(np.flatnonzero(lengths == length).tolist()) for length in range(row_length + 1)]
    left = [len(samples) for samples in waiting]
    rows = []
    for longest in range(row_length, 0, -1):
        while left[longest]:
            left[longest] -= 1
            chosen = [longest, *_filling(left, row_length - longest)]
            rows.append(sorted(waiting[length].popleft() for length in chosen))
    return sorted(rows)


def _filling(left: list[int], gap: int) -> list[int]:
    """Return at most two of the lengths left that fit the gap: two if two fit, else the longest."""
    for total in range(gap, 1, -1):
        for longer in range(total - 1, (total - 1) // 2, -1):
            shorter = total - longer
            if left[longer] and left[shorter] and (longer != shorter or left[longer] > 1):
                left[longer] -= 1
                left[shorter] -= 1
                return [longer, shorter]
    for length in range(gap, 0, -1):
        if left[length]:
            left[length] -= 1
            return [length]
    return []
