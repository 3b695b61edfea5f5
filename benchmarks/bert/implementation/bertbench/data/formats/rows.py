"""Rows of different lengths as one flat array, where they came from, and how a bad one is reported.

Shapes: N rows, T values in all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertbench.common.errors import DataError
from bertbench.data.store.columns import Columns

BLOCK_ROWS = 2048  # MLPerf's rows: 25 MiB as 64-bit integers, the widest that a reader makes of them


@dataclass(frozen=True)
class Place:
    """A block of rows in a file; they are counted from 0."""

    path: Path
    unit: Literal["row", "record"]
    first: int

    def error(self, row: int, found: str) -> DataError:
        """What to report about a row of the block; `found` says what was found and what was expected."""
        return DataError(
            f"{self.path}: {self.unit} {self.first + row}: found {found}; get or make this file again, or leave it out"
        )

    def require(self, good_N: NDArray[np.bool_], found: Callable[[int], str]) -> None:
        """Raise DataError for the first row that isn't good, described by found(row of the block)."""
        if not good_N.all():
            row = int(np.argmin(good_N))
            raise self.error(row, found(row))


class Block(NamedTuple):
    """Samples, and where each of them was read."""

    columns: Columns
    rows: NDArray[np.int64]
    """[N] each sample's row in the block: more than one sample may come from a packed row."""
    place: Place


class Rows(NamedTuple):
    """N rows of numbers, one after the other."""

    values: NDArray[Any]
    """[T]"""
    counts: NDArray[np.int64]
    """[N] values in each row; they add up to T."""

    @classmethod
    def of(cls, rows: Sequence[NDArray[Any]]) -> "Rows":
        """Rows given one by one; at least one is needed."""
        return cls(np.concatenate(rows), np.fromiter(map(len, rows), np.int64, len(rows)))

    @classmethod
    def of_matrix(cls, values_NL: NDArray[Any]) -> "Rows":
        """Rows of equal length L, or of one value if the array has one dimension only."""
        return cls(values_NL.reshape(-1), np.full(len(values_NL), values_NL[:1].size, np.int64))

    def owners(self) -> NDArray[np.int64]:
        """[T] the row that each value stands in."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def places(self) -> NDArray[np.int64]:
        """[T] the place of each value in its row."""
        return np.arange(len(self.values)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)

    def any_where(self, marks_T: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[N] whether a row holds a marked value."""
        if not marks_T.any():  # the rule: counting costs ten times as much
            return np.zeros(len(self.counts), np.bool_)
        return self.count_where(marks_T) > 0

    def count_where(self, marks_T: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[N] marked values in each row."""
        return np.bincount(self.owners()[marks_T], minlength=len(self.counts))

    def sums(self) -> NDArray[np.int64]:
        """[N] the sum of each row."""
        totals = np.zeros(len(self.counts), np.int64)
        np.add.at(totals, self.owners(), self.values.astype(np.int64))
        return totals
