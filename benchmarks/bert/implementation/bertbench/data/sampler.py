"""Which samples a rank trains on in a step: a pure function of (seed, step), so resuming needs no state.

The order of an epoch is a keyed permutation; epochs follow each other without a gap, so no step is partial and
each sample comes exactly once an epoch. Everything here is read from the index: no samples, no communication.
Shapes: N samples in the dataset, B samples in the global batch.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertbench.data.dataset import Dataset
from bertbench.data.permutation import Permutation
from bertbench.seeding import derive

Normalize = Literal["global", "rank"]


@dataclass(frozen=True)
class Part:
    """The samples of one forward and backward pass on one rank, and what their losses weigh.

    The weighted sums of all parts of all ranks add up to the loss of the global batch.
    """

    ids: NDArray[np.int64]
    masked_lm_weight: float
    """Factor on the sum of the part's masked-token losses."""
    next_sentence_weight: float
    """Factor on the sum of the part's sentence-pair losses."""


@dataclass(frozen=True)
class Sampler:
    """Deals the global batch of every step to ranks, and each rank's share to accumulation parts."""

    dataset: Dataset
    global_batch_size: int
    seed: int
    ranks: int
    parts: int
    normalize: Normalize

    def global_batch(self, step: int) -> NDArray[np.int64]:
        """Ids of the samples of step `step`, counted from 0: [B], in random order."""
        size = len(self.dataset)
        places = np.arange(step * self.global_batch_size, (step + 1) * self.global_batch_size)
        epochs, within = np.divmod(places, size)
        ids = np.empty_like(places)
        for epoch in range(epochs[0], epochs[-1] + 1):
            here = epochs == epoch
            ids[here] = Permutation(size, derive(self.seed, "order", int(epoch)))(within[here])
        return ids

    def share(self, step: int, rank: int) -> list[Part]:
        """What rank `rank` works through in step `step`."""
        ids_B = self.global_batch(step)
        masked_total = int(self.dataset.masked(ids_B).sum())
        return [self._part(ids, masked_total) for ids in np.split(np.split(ids_B, self.ranks)[rank], self.parts)]

    def _part(self, ids: NDArray[np.int64], masked_total: int) -> Part:
        if self.normalize == "global":
            return Part(ids, 1 / masked_total, 1 / self.global_batch_size)
        parts = self.ranks * self.parts
        return Part(ids, 1 / (parts * int(self.dataset.masked(ids).sum())), 1 / (parts * len(ids)))
