"""Size an exchange of samples; the simulation counts by it and the exchange is built by it."""

import numpy as np

from bertbench.balance.plan import EXCHANGING, Planner, Shares, StepPlan
from bertbench.data.store.columns import Index, Integers, lengths_of, masked_of

BYTES_OF_WORD = 2


def words(entries_N: Index, shares: Shares) -> Integers:
    """Return the 16-bit words of each rank's samples: [R].

    A sample has ids, masked positions and labels in words, segments and pair labels in half words.
    """
    entries_S = entries_N[shares.ids_S]
    tokens, masked = shares.sums(lengths_of(entries_S)), shares.sums(masked_of(entries_S))
    return (tokens + 2 * masked + (tokens + np.diff(shares.bounds_R1) + 1) // 2).astype(np.int64)


def bytes_received(entries_N: Index, planner: Planner, plan: StepPlan) -> float:
    """Return the bytes that a rank receives in a step's all-gather, mean over ranks; 0 without exchange."""
    if planner.balance.method not in EXCHANGING:
        return 0.0
    largest = words(entries_N, plan.drawn).reshape(planner.groups, -1).max(axis=1)
    others = planner.ranks // planner.groups - 1
    return float(BYTES_OF_WORD * others * largest.mean())
