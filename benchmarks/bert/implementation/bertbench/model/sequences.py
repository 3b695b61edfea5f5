"""Describe where each sequence begins and ends in a flat batch of tokens, and lay sequences out for a CPU's attention.

A CPU computes attention of short sequences head by head in its cache (short_attention.cpp): a library's products take
a call for each of 16 or 64 sequences of 8 to 32 tokens. Long ones are gathered into squares for matrix products: in
bfloat16 oneDNN takes 0.6 to 0.75 of the time where a head's rows are neighbours, and generates code for each width
that it meets. In float32 the copies cost 4 % of attention's time more than they save; views in place were a second way
through all of it. Filler pads a square to a multiple of 16; its keys are masked, and its gradient is 0.

Shapes: T tokens in the batch, S sequences, S1 = S + 1; of long sequences: H heads, K width of a head; p parts of a
token (query, key and value are 3); W width of a square; P rows in all squares, one for each head of each place.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertbench.model import loops

SHORT = 64
"""The longest sequence, in tokens, that stays in the cache."""
_TILE = 16  # widths are multiples of it: a vector of AVX-512, and an AMX tile's rows
_ROWS = 4  # heights of short sequences are multiples of it


class EqualLengths(NamedTuple):
    """A run of neighbouring sequences of one length: their tokens reshape to [count, length] without a copy."""

    start: int
    sequences: int
    length: int


class Short(NamedTuple):
    """The short sequences of a batch."""

    table_S3: Tensor
    """First token, length, and how many of a head's probabilities come before."""
    numbers: int
    """Of a head's probabilities."""

    @classmethod
    def of(cls, start_S: np.ndarray, length_S: np.ndarray) -> "Short":
        """Lay out sequences by first token and length."""
        numbers_S = _rounded(length_S, _ROWS) * _rounded(length_S, _TILE)
        table_S3 = torch.from_numpy(np.stack((start_S, length_S, np.cumsum(numbers_S) - numbers_S), 1))
        return cls(table_S3, int(numbers_S.sum()))


class Squares:
    """The long sequences of a batch, gathered by loops.cpp: rows are ordered by sequence, head and place."""

    def __init__(self, start_S: np.ndarray, length_S: np.ndarray) -> None:
        """Lay out sequences by first token and length."""
        width_S = _rounded(length_S, _TILE)
        self._widths, self._lengths = width_S.tolist(), length_S.tolist()
        self._places = sum(self._widths)
        self._table_S4 = torch.from_numpy(np.stack((start_S, length_S, width_S, np.cumsum(width_S) - width_S), 1))

    def gather(self, flat_TpHK: Tensor) -> Tensor:
        """Return the rows of all squares, filler 0: [T, p, H, K] in, [p, P, K] out."""
        parts, heads, width = flat_TpHK.shape[1:]
        rows_pPK = flat_TpHK.new_empty((parts, heads * self._places, width))
        self._copy("gather", flat_TpHK, rows_pPK, flat_TpHK)
        return rows_pPK

    def scatter(self, rows_pPK: Tensor, into_TpHK: Tensor) -> None:
        """Write the rows of all squares to their tokens, without filler: the reverse of `gather`."""
        self._copy("scatter", rows_pPK, into_TpHK, into_TpHK)

    def _copy(self, name: str, given: Tensor, into: Tensor, flat_TpHK: Tensor) -> None:
        loops.run(name, given, into, self._table_S4, len(self._table_S4), *flat_TpHK.shape[1:], self._places)

    def split(self, rows: list[Tensor], heads: int) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
        """Yield each sequence's length with its part, [H, W, K], of each tensor [P, K]: views, to write into."""
        sizes = [heads * width for width in self._widths]
        parts = zip(*(rows_PK.split(sizes) for rows_PK in rows), strict=True)
        for length, own in zip(self._lengths, parts, strict=True):
            yield length, tuple(part.unflatten(0, (heads, -1)) for part in own)


def _rounded(counts: np.ndarray, step: int) -> np.ndarray:
    return -(-counts // step) * step


@dataclass(frozen=True, eq=False)
class Sequences:
    """The layout of a flat batch: sequence i owns tokens cu_seqlens[i] up to, not including, cu_seqlens[i + 1]."""

    cu_seqlens_S1: Tensor
    groups: tuple[EqualLengths, ...]

    @property
    def longest(self) -> int:
        """Return the length of the longest sequence."""
        return max(group.length for group in self.groups)

    def grouped(self, flat_T: Tensor) -> list[Tensor]:
        """Return views of a tensor of all tokens, [sequences, length, ...] for each group."""
        parts = flat_T.split([group.sequences * group.length for group in self.groups])
        return [part.unflatten(0, group[1:]) for part, group in zip(parts, self.groups, strict=True)]

    @cached_property
    def by_length(self) -> tuple[Short, Squares]:
        """Return short and long sequences for a CPU's attention, laid out once for all layers and both passes."""
        _, counts, lengths = np.array(self.groups).T
        length_S = np.repeat(lengths, counts)
        start_S, is_short = np.cumsum(length_S) - length_S, length_S <= SHORT
        return Short.of(start_S[is_short], length_S[is_short]), Squares(start_S[~is_short], length_S[~is_short])

    @classmethod
    def of(cls, lengths_S: np.ndarray) -> "Sequences":
        """Lay out sequences of these lengths, in this order; equal neighbours share a group.

        Batches come sorted by length, so each different length makes one group.
        """
        cu_seqlens_S1 = np.zeros(len(lengths_S) + 1, dtype=np.int32)
        np.cumsum(lengths_S, out=cu_seqlens_S1[1:])
        groups, start = [], 0
        for length, equal in groupby(lengths_S.tolist()):
            groups.append(EqualLengths(start, len(list(equal)), length))
            start += groups[-1].sequences * length
        return cls(torch.from_numpy(cu_seqlens_S1), tuple(groups))
