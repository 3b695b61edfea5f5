"""What an exchange of samples puts on the wire; the simulation counts by it, the exchange itself is built by it."""

import numpy as np
from numpy.typing import NDArray

from bertbench.balance.plan import EXCHANGING, Planner, Shares

BYTES_OF_WORD = 2


def words(tokens: int, masked: int, samples: int) -> int:
    """16-bit words of samples: ids, places and labels of the masked ones, and in half words segments and pairs."""
    return tokens + 2 * masked + (tokens + samples + 1) // 2


def bytes_received(planner: Planner, drawn: Shares, lengths_S: NDArray[np.int64], masked_S: NDArray[np.int64]) -> float:
    """Bytes that a rank receives from others in the all-gather of a step, mean over the ranks; 0 without exchange."""
    if planner.balance.method not in EXCHANGING:
        return 0.0
    totals = (drawn.sums(lengths_S), drawn.sums(masked_S), np.diff(drawn.bounds_R1))
    sent = np.array([words(int(n), int(m), int(count)) for n, m, count in zip(*totals, strict=True)])
    largest = sent.reshape(planner.groups, -1).max(axis=1)
    others = planner.ranks // planner.groups - 1
    return float(BYTES_OF_WORD * others * largest.mean())
