"""What an exchange of samples puts on the wire; the simulation counts by it, the exchange itself is built by it."""

import numpy as np
from numpy.typing import NDArray

from bertbench.balance.plan import EXCHANGING, Planner, Shares, StepPlan
from bertbench.data.store.index import Index, lengths_of, masked_of

BYTES_OF_WORD = 2


def words(entries_N: Index, shares: Shares) -> NDArray[np.int64]:
    """16-bit words of each rank's samples: ids, places and labels of the masked, and in half words segments and pairs.

    Returns [R].
    """
    entries_S = entries_N[shares.ids_S]
    tokens, masked = shares.sums(lengths_of(entries_S)), shares.sums(masked_of(entries_S))
    return (tokens + 2 * masked + (tokens + np.diff(shares.bounds_R1) + 1) // 2).astype(np.int64)


def bytes_received(entries_N: Index, planner: Planner, plan: StepPlan) -> float:
    """Bytes that a rank receives from others in the all-gather of a step, mean over the ranks; 0 without exchange."""
    if planner.balance.method not in EXCHANGING:
        return 0.0
    largest = words(entries_N, plan.drawn).reshape(planner.groups, -1).max(axis=1)
    others = planner.ranks // planner.groups - 1
    return float(BYTES_OF_WORD * others * largest.mean())
