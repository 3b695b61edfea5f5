"""Choose the samples of a step: compute its part of the epoch's order, without an array for the whole epoch.

Shapes: N samples in the dataset, B samples in the global batch, K steps in a window.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bertbench.balance.assignment import longest_first
from bertbench.common.errors import ConfigError
from bertbench.common.seeding import derive, permuted
from bertbench.data.store.columns import Index, Integers, lengths_of

# Samples that are stratified together. In 2^18 random samples, a stratum's share is within 0.1 % of its share of the
# dataset. Planning them takes 30 ms, once every 16 steps at a global batch of 16,384.
_WINDOW = 1 << 18


class RandomOrder(NamedTuple):
    """A keyed permutation; epochs follow each other without a gap, so no step is partial."""

    samples: int
    global_batch_size: int
    seed: int

    def step(self, step: int) -> Integers:
        """Return the ids of a step's samples in the order in which ranks draw them: [B]. Steps count from 0."""
        return self.places(step * self.global_batch_size, (step + 1) * self.global_batch_size)

    def places(self, start: int, stop: int) -> Integers:
        """Return the ids at places `start` to `stop` - 1 of the endless order."""
        epochs, within = np.divmod(np.arange(start, stop), self.samples)
        ids = np.empty_like(within)
        for epoch in range(epochs[0], epochs[-1] + 1):
            here = slice(*np.searchsorted(epochs, (epoch, epoch + 1)))
            ids[here] = permuted(within[here], self.samples, derive(self.seed, "order", epoch))
        return ids


Plan = Callable[[Index, int, int, range], Integers]
"""Takes the index, the global batch size, an epoch's seed and some of its steps; returns their samples' ids: [K, B]."""


class WindowedOrder:
    """An order that is planned in windows of whole steps. Each epoch leaves out N mod B random samples."""

    def __init__(self, entries_N: Index, global_batch_size: int, seed: int, plan: Plan) -> None:
        if len(entries_N) < global_batch_size:
            raise ConfigError(
                f"a global batch of {global_batch_size:,} samples can't be stratified from {len(entries_N):,} training "
                "samples; lower data.global_batch_size, or set data.balance to planned"
            )
        self._entries_N = entries_N
        self._batch = global_batch_size
        self._seed = seed
        self._plan = plan
        self._steps_per_epoch = len(entries_N) // global_batch_size
        self._window_steps = max(1, _WINDOW // global_batch_size)
        self._planned = lru_cache(maxsize=1)(self._plan_window)

    def step(self, step: int) -> Integers:
        """Return the ids of a step's samples in the order in which ranks draw them: [B]. Steps count from 0."""
        epoch, within = divmod(step, self._steps_per_epoch)
        window, place = divmod(within, self._window_steps)
        return self._planned(epoch, window)[place]

    def _plan_window(self, epoch: int, window: int) -> Integers:
        """Return the ids of a window: [K, B]."""
        first = window * self._window_steps
        steps = range(first, min(first + self._window_steps, self._steps_per_epoch))
        return self._plan(self._entries_N, self._batch, derive(self._seed, "order", epoch), steps)


def plan_strata(edges: tuple[int, ...], entries_N: Index, batch: int, seed: int, steps: range) -> Integers:
    """Give any consecutive samples the dataset's share of each stratum of length, up to rounding.

    The samples of a stratum, in random order, are spread evenly over the window: the i-th of n stands at (i + 1/2) / n.
    So a rank's batch gets a stratum's share times the batch size, rounded down or up. A sample that rounding keeps out
    of one batch is in the next, so that a window has every sample exactly once.
    """
    ids = permuted(np.arange(steps.start * batch, steps.stop * batch), len(entries_N), seed)
    strata = np.searchsorted(edges, lengths_of(entries_N[ids])).astype(np.uint16)
    by_stratum = np.argsort(strata, kind="stable")
    place = np.concatenate([(np.arange(count) + 0.5) / count for count in np.bincount(strata)])
    spread = by_stratum[np.argsort(place, kind="stable")]
    return ids[spread].reshape(len(steps), batch)


def plan_nodes(nodes: int, entries_N: Index, batch: int, seed: int, steps: range) -> Integers:
    """Let each node draw from its own share of the data, one sample from each quantile of length.

    The shares stay the same for an epoch. Every B consecutive ids are sorted by length, and each M neighbours are
    assigned at random, one to each of the M nodes, so that the nodes' shares are similar. The samples that a node draws
    in K steps are sorted and cut into strata of K samples: as many strata as the node's batch has samples. Every step
    takes one sample of each stratum.
    """
    steps_per_epoch, left_over = divmod(len(entries_N), batch)
    blocks = permuted(np.arange(steps.start, steps.stop), steps_per_epoch, seed)
    ids_KB = seed % (left_over + 1) + blocks[:, None] * batch + np.arange(batch)
    generator = np.random.default_rng(derive(seed, steps.start))
    neighbours_KQM = _sorted(entries_N, ids_KB).reshape(len(ids_KB), -1, nodes)
    share_MW = generator.permuted(neighbours_KQM, axis=2).transpose(2, 0, 1).reshape(nodes, -1)
    share_MW = generator.permuted(share_MW, axis=1)  # otherwise samples of equal length would keep their order
    strata_MSK = _sorted(entries_N, share_MW).reshape(nodes, -1, len(steps))
    return generator.permuted(strata_MSK, axis=2).transpose(2, 0, 1).reshape(len(steps), batch)


def _sorted(entries_N: Index, ids: Integers) -> Integers:
    """Sort each row of ids by length, longest first."""
    return np.take_along_axis(ids, longest_first(lengths_of(entries_N[ids])), axis=1)
