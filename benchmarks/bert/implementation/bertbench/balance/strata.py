"""Draw fixed numbers of samples from each stratum of length for every rank, whatever the dataset's shares are.

Shapes: N samples in the dataset, B blocks of W samples, K strata, P places in the order of a stratum.
"""

from itertools import pairwise

import numpy as np

from bertbench.balance.order import RandomOrder
from bertbench.common.errors import ConfigError
from bertbench.common.seeding import derive
from bertbench.data.store.columns import MAX_LENGTH, Flags, Index, Integers, lengths_of

# Instead of a stratum's ids, each rank keeps how many samples of the stratum each block has. For MLPerf's 157 million
# samples and four strata, this takes 39 MB per rank instead of 627 MB. Searching the blocks for a step of 16,384
# samples takes 20 ms.
_BLOCK = 128
_CHUNK = _BLOCK << 15  # samples that are counted at once


class StratumIndex:
    """Find any sample of any stratum by its number within the stratum; edges[k] is the largest length of stratum k."""

    def __init__(self, entries_N: Index, edges: tuple[int, ...]) -> None:
        self._bounds = tuple(pairwise((0, *edges)))
        full_blocks, left_over = divmod(len(entries_N), _BLOCK)
        self._full_blocks_BW = entries_N[: len(entries_N) - left_over].reshape(full_blocks, _BLOCK)
        self._last_block_W = np.zeros(_BLOCK, entries_N.dtype)  # zeros come after all samples: they are never reached
        self._last_block_W[:left_over] = entries_N[len(entries_N) - left_over :]
        blocks = -(-len(entries_N) // _BLOCK)
        counts_KB = np.zeros((len(edges), blocks), np.int64)
        for start in range(0, len(entries_N), _CHUNK):
            chunk = entries_N[start : start + _CHUNK]
            first_block = start // _BLOCK
            for stratum in range(len(edges)):
                blocks_of_members = first_block + np.flatnonzero(self._holds(stratum, chunk)) // _BLOCK
                counts_KB[stratum] += np.bincount(blocks_of_members, minlength=blocks)
        self._starts_KB1 = np.pad(np.cumsum(counts_KB, axis=1), ((0, 0), (1, 0)))

    def counts(self) -> Integers:
        """Return the number of samples of each stratum: [K]."""
        return self._starts_KB1[:, -1]

    def ids(self, stratum: int, numbers_P: Integers) -> Integers:
        """Return the ids of samples of a stratum by their numbers in it, from 0: [P]."""
        starts_B1 = self._starts_KB1[stratum]
        blocks_P = np.searchsorted(starts_B1, numbers_P, side="right") - 1
        numbers_in_block_P = (numbers_P - starts_B1[blocks_P]).astype(np.uint8)
        members_so_far_PW = np.cumsum(self._holds(stratum, self._blocks(blocks_P)), axis=1, dtype=np.uint8)
        column_P = (members_so_far_PW > numbers_in_block_P[:, None]).argmax(axis=1)
        return blocks_P * _BLOCK + column_P

    def _blocks(self, blocks_P: Integers) -> Index:
        """Return the entries of these blocks: [P, W]."""
        is_full_P = blocks_P < len(self._full_blocks_BW)
        entries_PW = np.empty((len(blocks_P), _BLOCK), self._last_block_W.dtype)
        entries_PW[is_full_P] = self._full_blocks_BW[blocks_P[is_full_P]]
        entries_PW[~is_full_P] = self._last_block_W
        return entries_PW

    def _holds(self, stratum: int, entries: Index) -> Flags:
        """Return, for each entry, whether its sample belongs to the stratum."""
        above, longest = self._bounds[stratum]
        lengths_less_1 = entries & np.uint16(MAX_LENGTH - 1)
        return (lengths_less_1 >= above) & (lengths_less_1 < longest)


def count_strata(entries: Index, edges: tuple[int, ...]) -> Integers:
    """Return the number of samples of each stratum: [K]. Longer samples than the last edge belong to none."""
    length_counts = np.zeros(MAX_LENGTH + 1, np.int64)
    for start in range(0, len(entries), _CHUNK):
        lengths = lengths_of(entries[start : start + _CHUNK])
        length_counts += np.bincount(lengths, minlength=MAX_LENGTH + 1)
    counts_up_to = np.cumsum(length_counts)[np.minimum(edges, MAX_LENGTH)]
    return np.diff(counts_up_to, prepend=0)


class QuotaOrder:
    """Give every rank the same number of samples of each stratum in every step.

    Each stratum has an endless random order of its own, whose passes follow each other without a gap: a stratum that is
    used up begins again in another order, while the others continue. So a quota above the dataset's share repeats the
    stratum's samples sooner than other strata's. A rank's samples of each stratum are spread evenly over its batch, so
    that the parts of an accumulated batch have similar lengths.
    """

    def __init__(
        self, entries_N: Index, edges: tuple[int, ...], quotas: tuple[int, ...], ranks: int, seed: int
    ) -> None:
        """Raise ConfigError if a stratum has fewer samples than a step takes."""
        self._ranks = ranks
        self._index = StratumIndex(entries_N, edges)
        self._orders: dict[int, RandomOrder] = {}
        places: list[float] = []
        for stratum, quota in enumerate(quotas):
            if quota == 0:
                continue
            samples = int(self._index.counts()[stratum])
            _require_enough(samples, ranks * quota, edges, stratum)
            self._orders[stratum] = RandomOrder(samples, ranks * quota, derive(seed, "stratum", stratum))
            places += [(number + 0.5) / quota for number in range(quota)]
        self._spread = np.argsort(places, kind="stable")

    def step(self, step: int) -> Integers:
        """Return the ids of a step's samples in the order in which ranks draw them. Steps count from 0."""
        by_stratum = []
        for stratum, order in self._orders.items():
            ids = self._index.ids(stratum, order.step(step))
            by_stratum.append(ids.reshape(self._ranks, -1))
        return np.concatenate(by_stratum, axis=1)[:, self._spread].ravel()


def lengths_text(edges: tuple[int, ...], stratum: int) -> str:
    """Return the lengths of a stratum for a message, such as `129 to 256`."""
    shortest = 1 if stratum == 0 else edges[stratum - 1] + 1
    return f"{shortest} to {edges[stratum]}"


def _require_enough(samples: int, taken: int, edges: tuple[int, ...], stratum: int) -> None:
    if samples < taken:
        raise ConfigError(
            f"data.strata_quotas: a step takes {taken:,} samples of {lengths_text(edges, stratum)} tokens, but the "
            f"training set has {samples:,}; lower data.strata_quotas and the batch, or set data.strata_quotas to null "
            "to draw the dataset's shares"
        )
