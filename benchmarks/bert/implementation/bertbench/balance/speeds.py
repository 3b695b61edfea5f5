"""Keep each rank's speed by the step from which it applies; unequal deals follow these speeds.

All ranks hold the same speeds, and the loader's thread reads them ahead of the steps, so a change starts at the first
unplanned step. Shapes: R ranks.
"""

import numpy as np

from bertbench.data.store.columns import Floats

Change = tuple[int, tuple[float, ...]]
"""The first step, counted from 0, that the speeds of all ranks hold for."""


class Speeds:
    """Relative speeds of the ranks over the steps of a run."""

    def __init__(self, speeds_R: tuple[float, ...]) -> None:
        self._changes: list[Change] = [(0, speeds_R)]

    def at(self, step: int) -> Floats:
        """Return the share of a step's work that each rank is fast enough for: [R], 1 in all."""
        speeds_R = np.array(next(speeds for first, speeds in reversed(self._changes) if first <= step))
        return speeds_R / speeds_R.sum()

    def text(self) -> str:
        """Return the ranks' shares of the first step as a run prints them."""
        return f"{', '.join(f'{share:.1%}' for share in self.at(0))} of the work"

    def change(self, first: int, speeds_R: tuple[float, ...]) -> None:
        """Let other speeds hold from step `first` on; those of steps before it stay."""
        self._changes = [change for change in self._changes if change[0] < first] + [(first, speeds_R)]

    def since(self, step: int) -> tuple[Change, ...]:
        """Return the changes that steps from `step` on depend on: what a snapshot holds."""
        last = max(place for place, (first, _) in enumerate(self._changes) if first <= step)
        return tuple(self._changes[last:])

    def restore(self, changes: tuple[Change, ...]) -> None:
        """Restore the speeds from `since`; if they are for another number of ranks, keep the current ones."""
        if changes and len(changes[0][1]) == len(self._changes[0][1]):
            self._changes = list(changes)
