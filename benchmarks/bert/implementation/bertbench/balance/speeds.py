"""Balance ranks of unequal speed: keep each rank's speed by step, and assign samples in proportion to it.

All ranks hold the same speeds, and the loader's thread reads them ahead of the steps, so a change applies from the
first step that is not planned yet. Shapes: S samples in the step, R ranks.
"""

import numpy as np

from bertbench.balance.assignment import longest_first
from bertbench.data.store.columns import Floats, Integers

Change = tuple[int, tuple[float, ...]]
"""The first step, counted from 0, at which the speeds apply, and the speeds of all ranks."""


class Speeds:
    """Relative speeds of the ranks over the steps of a run."""

    def __init__(self, speeds_R: tuple[float, ...]) -> None:
        self._changes: list[Change] = [(0, speeds_R)]

    def at(self, step: int) -> Floats:
        """Return each rank's speed in a step as a share of the total speed of all ranks: [R], with the sum 1."""
        _, speeds = self._in_force(step)
        speeds_R = np.array(speeds)
        return speeds_R / speeds_R.sum()

    def text(self) -> str:
        """Return each rank's share of the work in the first step, as a run prints it."""
        return f"{', '.join(f'{share:.1%}' for share in self.at(0))} of the work"

    def change(self, first: int, speeds_R: tuple[float, ...]) -> None:
        """Use other speeds from step `first` on; earlier steps keep theirs."""
        self._changes = [change for change in self._changes if change[0] < first]
        self._changes.append((first, speeds_R))

    def since(self, step: int) -> tuple[Change, ...]:
        """Return the changes that steps from `step` on depend on, for a snapshot."""
        later = [change for change in self._changes if change[0] > step]
        return (self._in_force(step), *later)

    def restore(self, changes: tuple[Change, ...]) -> None:
        """Restore the speeds from `since`; if they are for another number of ranks, keep the current ones."""
        ranks = len(self._changes[0][1])
        if changes and len(changes[0][1]) == ranks:
            self._changes = list(changes)

    def _in_force(self, step: int) -> Change:
        return [change for change in self._changes if change[0] <= step][-1]


def assign_by_speed(lengths_S: Integers, share_R: Floats, cost_of_length: Floats) -> Integers:
    """Assign the costliest samples first, each to the rank that would finish it first (LPT on uniform machines).

    `share_R` is each rank's speed as a share of the total speed. Every rank gets a sample if there are enough samples.
    Assigning 128 samples to 2 ranks takes 0.4 ms, and 16,384 samples to 1,024 ranks 90 ms. Returns each sample's rank:
    [S].
    """
    (order_S,) = longest_first(lengths_S[None])
    costs_S = cost_of_length[lengths_S[order_S]]
    loads_R = np.zeros(len(share_R))
    rank_S = np.empty(len(order_S), np.int64)
    for place, cost in enumerate(costs_S):
        rank = int(((loads_R + cost) / share_R).argmin())
        rank_S[place] = rank
        loads_R[rank] += cost
    for idle in np.setdiff1d(np.arange(len(share_R)), rank_S):  # too slow for any sample, so it gets a short one
        counts_R = np.bincount(rank_S, minlength=len(share_R))
        can_be_spared = np.flatnonzero(counts_R[rank_S] > 1)
        if can_be_spared.size:
            rank_S[can_be_spared[-1]] = idle
    assigned_S = np.empty_like(rank_S)
    assigned_S[order_S] = rank_S
    return assigned_S
