"""Hold rows of different lengths as one flat array, with their place in the file for error messages.

Shapes: N rows, T values in all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertbench.common.errors import DataError
from bertbench.data.store.columns import Array, Columns, Flags, Integers, offsets

BLOCK_ROWS = 2048  # 25 MiB of MLPerf's rows as 64-bit integers, the widest type of a reader


@dataclass(frozen=True)
class FilePlace:
    """A block of rows in a file; they are counted from 0."""

    path: Path
    unit: Literal["row", "record"]
    first: int

    def error(self, row: int, fault: str) -> DataError:
        """Return the error for a row of the block; `fault` gives what was found and what was expected."""
        return DataError(
            f"{self.path}: {self.unit} {self.first + row}: found {fault}; download or make this file again, or leave "
            "it out"
        )

    def refuse(self, bad_N: Flags, fault_of: Callable[[int], str]) -> None:
        """Raise DataError for the first bad row; `fault_of` describes a row of the block."""
        if bad_N.any():
            row = int(np.argmax(bad_N))
            raise self.error(row, fault_of(row))


class Block(NamedTuple):
    """Samples, and the place of each in its file."""

    columns: Columns
    rows: Integers
    """[N] each sample's row in the block: more than one sample may come from a packed row."""
    place: FilePlace


class Rows(NamedTuple):
    """N rows of numbers, one after the other."""

    values: NDArray[Any]
    """[T]"""
    counts: Array
    """[N] values in each row; they add up to T."""

    @classmethod
    def of(cls, rows: Sequence[NDArray[Any]]) -> "Rows":
        """Join rows given one by one; at least one is needed."""
        return cls(np.concatenate(rows), np.fromiter(map(len, rows), np.int64, len(rows)))

    def owners(self) -> Integers:
        """Return the row of each value: [T]."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def any_where(self, marks_T: Flags) -> Flags:
        """Return whether each row has a marked value: [N]."""
        if not marks_T.any():  # the usual case: counting costs ten times as much
            return np.zeros(len(self.counts), np.bool_)
        return self.count_where(marks_T) > 0

    def count_where(self, marks_T: Flags) -> Integers:
        """Return the number of marked values in each row: [N]."""
        return np.bincount(self.owners()[marks_T], minlength=len(self.counts))

    def sums(self) -> Integers:
        """Return the sum of each row: [N]."""
        return np.diff(offsets(self.values)[offsets(self.counts)])
