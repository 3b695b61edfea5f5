"""Pack sequences into rows of fixed length, at most three per row. This is the usual way to balance, for comparison.

Shapes: R ranks, P rows of a window.
"""

from collections import Counter

import numpy as np

from bertbench.balance.order import RandomOrder
from bertbench.common.seeding import derive
from bertbench.data.store.columns import Index, Integers, lengths_of, offsets

MOST_PER_ROW = 3
_WINDOW = 1 << 19  # samples packed together, in 0.2 s, once every 32 steps at a global batch of 16,384

Row = tuple[int, ...]


def pack_lengths(counts: Integers, row_length: int) -> Counter[Row]:
    """Return how many rows to make of each combination of lengths; `counts[n]` sequences have n <= `row_length` tokens.

    The longest sequence begins a row, and the one or two that fill it best join it. If several pairs fill it equally
    well, the most unequal one is taken, since long and short sequences are the most frequent. Wikipedia's rows become
    99.5 % full.
    """
    left = counts.copy()
    rows: Counter[Row] = Counter()
    for longest in range(row_length, 0, -1):
        while left[longest]:
            left[longest] -= 1
            row = (longest, *_best_fill(left, min(longest, row_length), row_length - longest))
            left[longest] += 1
            times = min(int(left[length]) // number for length, number in Counter(row).items())
            for length in row:
                left[length] -= times
            rows[row] += times
    return rows


def _best_fill(left: Integers, longest: int, space: int) -> Row:
    """Return one or two lengths, none above `longest`, that fill the space as far as the remaining ones allow."""
    for total in range(space, 0, -1):
        first = np.arange(min(total - 1, longest), (total - 1) // 2, -1)
        second = total - first
        needed = np.where(first == second, 2, 1)
        fits = np.flatnonzero((left[first] >= needed) & (left[second] > 0))
        if fits.size:
            return int(first[fits[0]]), int(second[fits[0]])
        if total <= longest and left[total]:
            return (total,)
    return ()


class PackedOrder:
    """Assign the same number of rows to every rank in a step: about its share of the global batch.

    The rows of a window come in random order. Rows that don't fill the window's last step join the next window. To find
    a step, all windows before it must be packed, so resuming far into an epoch takes 0.4 s per million samples. The
    number of samples varies by step. On average it is the global batch size, up to rounding to whole rows.
    """

    def __init__(self, entries_N: Index, global_batch_size: int, seed: int, ranks: int, row_length: int) -> None:
        self._entries_N = entries_N
        self._seed = seed
        self._ranks = ranks
        self._row_length = row_length
        self._window = max(4 * global_batch_size, min(_WINDOW, len(entries_N)))
        self._order = RandomOrder(len(entries_N), global_batch_size, seed)
        self._restart()
        rows_of_batch = len(self._rows_P3) / self._window * global_batch_size
        self._step_rows = ranks * max(1, round(rows_of_batch / ranks))

    def step(self, step: int) -> Integers:
        """Return the ids of a step's samples by rank, -1 where a row has fewer than three: [R, places]."""
        if step < self._first_step:
            self._restart()
        while step >= self._first_step + len(self._rows_P3) // self._step_rows:
            self._next_window()
        start = (step - self._first_step) * self._step_rows
        return self._rows_P3[start : start + self._step_rows].reshape(self._ranks, -1)

    def _restart(self) -> None:
        self._first_step = self._number = 0
        self._rows_P3 = self._pack(self._order.places(0, self._window))

    def _next_window(self) -> None:
        steps = len(self._rows_P3) // self._step_rows
        left_over = self._rows_P3[steps * self._step_rows :]
        self._first_step += steps
        self._number += 1
        fresh = self._order.places(self._number * self._window, (self._number + 1) * self._window)
        self._rows_P3 = self._pack(np.concatenate((left_over[left_over >= 0], fresh)))

    def _pack(self, ids: Integers) -> Integers:
        """Pack these samples into rows in random order: [P, 3], -1 where a row has fewer."""
        lengths = lengths_of(self._entries_N[ids])
        counts = np.bincount(lengths, minlength=self._row_length + 1)
        by_length = ids[np.argsort(lengths, kind="stable")]
        taken = offsets(counts)  # where the untaken samples of each length begin
        packed = []
        for row, count in pack_lengths(counts, self._row_length).items():
            rows = np.full((count, MOST_PER_ROW), -1)
            for place, length in enumerate(row):
                rows[:, place] = by_length[taken[length] : taken[length] + count]
                taken[length] += count
            packed.append(rows)
        generator = np.random.default_rng(derive(self._seed, "rows", self._number))
        return generator.permutation(np.concatenate(packed))
