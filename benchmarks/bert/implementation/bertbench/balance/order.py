"""Choose the samples of a step: the order of an epoch, evaluated at a step, without an array of the epoch's length.

Shapes: N samples in the dataset, B samples in the global batch, K steps in a window.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from bertbench.balance.deal import longest_first
from bertbench.common.errors import ConfigError
from bertbench.common.seeding import derive
from bertbench.data.store.index import Index, lengths_of
from bertbench.data.store.permutation import Permutation

# Samples that are stratified together. In 2^18 random samples a stratum's share is the dataset's to 0.1 %, and
# planning them takes 30 ms, once every 16 steps at a global batch of 16,384.
_WINDOW = 1 << 18


class RandomOrder:
    """A keyed permutation; epochs follow each other without a gap, so no step is partial."""

    def __init__(self, samples: int, global_batch_size: int, seed: int) -> None:
        self._samples = samples
        self._batch = global_batch_size
        self._seed = seed

    def step(self, step: int) -> NDArray[np.int64]:
        """Return the ids of a step's samples in the order in which ranks draw them: [B]. Steps count from 0."""
        return self.places(step * self._batch, (step + 1) * self._batch)

    def places(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the ids at places `start` to `stop` - 1 of the endless order."""
        epochs, within = np.divmod(np.arange(start, stop), self._samples)
        ids = np.empty_like(within)
        for epoch in range(epochs[0], epochs[-1] + 1):
            here = slice(*np.searchsorted(epochs, (epoch, epoch + 1)))
            ids[here] = Permutation(self._samples, derive(self._seed, "order", epoch))(within[here])
        return ids


class WindowedOrder(ABC):
    """An order planned in windows of whole steps of an epoch; the N mod B samples left over differ by epoch."""

    def __init__(self, entries_N: Index, global_batch_size: int, seed: int) -> None:
        if len(entries_N) < global_batch_size:
            raise ConfigError(
                f"a global batch of {global_batch_size:,} samples can't be stratified from {len(entries_N):,} training "
                "samples; lower data.global_batch_size, or set data.balance to planned"
            )
        self._entries_N = entries_N
        self._batch = global_batch_size
        self._seed = seed
        self._steps_per_epoch = len(entries_N) // global_batch_size
        self._window_steps = max(1, _WINDOW // global_batch_size)
        self._planned: tuple[int, int] | None = None
        self._ids_KB: NDArray[np.int64]

    def step(self, step: int) -> NDArray[np.int64]:
        """Return the ids of a step's samples in the order in which ranks draw them: [B]. Steps count from 0."""
        epoch, within = divmod(step, self._steps_per_epoch)
        window, place = divmod(within, self._window_steps)
        if self._planned != (epoch, window):
            first = window * self._window_steps
            steps = range(first, min(first + self._window_steps, self._steps_per_epoch))
            self._ids_KB, self._planned = self._plan(epoch, steps), (epoch, window)
        return self._ids_KB[place]

    @abstractmethod
    def _plan(self, epoch: int, steps: range) -> NDArray[np.int64]:
        """Return the ids of all samples of these steps of an epoch: [K, B]."""


class StratifiedOrder(WindowedOrder):
    """Keep the dataset's shares of each stratum of length in every run of consecutive samples, up to rounding.

    The samples of a stratum, in random order, are spread evenly over the window: the i-th of n stands at (i + 1/2) / n.
    So the quotas of a rank's batch are share times batch, rounded down or up in turn, and what one batch rounds away
    the next one gets: within a window all samples come exactly once.
    """

    def __init__(self, entries_N: Index, global_batch_size: int, seed: int, edges: tuple[int, ...]) -> None:
        super().__init__(entries_N, global_batch_size, seed)
        self._edges = edges

    def _plan(self, epoch: int, steps: range) -> NDArray[np.int64]:
        size = len(self._entries_N)
        places = np.arange(steps.start * self._batch, steps.stop * self._batch)
        ids = Permutation(size, derive(self._seed, "order", epoch))(places)
        strata = np.searchsorted(self._edges, lengths_of(self._entries_N[ids])).astype(np.uint16)
        by_stratum = np.argsort(strata, kind="stable")
        counts = np.bincount(strata, minlength=len(self._edges) + 1)
        place = np.concatenate([(np.arange(count) + 0.5) / count for count in counts if count])
        spread = by_stratum[np.argsort(place, kind="stable")]
        return ids[spread].reshape(len(steps), self._batch)


class NodeOrder(WindowedOrder):
    """Each node draws from its own share of the data, one sample from each of its quantiles of length.

    Shares: every B consecutive ids are sorted by length and dealt to the nodes, so shares are alike; they hold for an
    epoch. Draws: a node's samples of K steps, sorted, make as many strata as its batch has samples, each of K samples,
    and every step takes one of each.
    """

    def __init__(self, entries_N: Index, global_batch_size: int, seed: int, nodes: int) -> None:
        super().__init__(entries_N, global_batch_size, seed)
        self._nodes = nodes

    def _plan(self, epoch: int, steps: range) -> NDArray[np.int64]:
        seed = derive(self._seed, "order", epoch)
        left_over = len(self._entries_N) - self._steps_per_epoch * self._batch
        first = seed % (left_over + 1)
        blocks = Permutation(self._steps_per_epoch, seed)(np.arange(steps.start, steps.stop))
        ids_KB = first + blocks[:, None] * self._batch + np.arange(self._batch)
        generator = np.random.default_rng(derive(seed, steps.start))
        share_MW = generator.permuted(self._shares(ids_KB, generator), axis=1)  # else equal lengths would keep an order
        sorted_MW = np.take_along_axis(share_MW, longest_first(lengths_of(self._entries_N[share_MW])), axis=1)
        strata_MSK = sorted_MW.reshape(self._nodes, -1, len(steps))
        return generator.permuted(strata_MSK, axis=2).transpose(2, 0, 1).reshape(len(steps), self._batch)

    def _shares(self, ids_KB: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
        """Deal each block's samples to the nodes: [M nodes, K steps times a node's batch].

        Each node gets one of every M neighbours in length, at random.
        """
        sorted_KB = np.take_along_axis(ids_KB, longest_first(lengths_of(self._entries_N[ids_KB])), axis=1)
        neighbours_KQM = sorted_KB.reshape(len(ids_KB), -1, self._nodes)
        return generator.permuted(neighbours_KQM, axis=2).transpose(2, 0, 1).reshape(self._nodes, -1)
