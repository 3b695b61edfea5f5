"""Describe where each sequence begins and ends in a flat batch of tokens, and gather heads into squares.

Squares are for attention on a CPU (model/attention.py): short sequences of a few widths share a matrix product. With a
product for each length, calls cost more than the work: 64 sequences of 8 to 32 tokens make 16 products of 0.2 MFLOP.
Filler pads a short sequence to its square's width; the filler's keys are masked, and its gradient is 0. Only attention
sees it.

Long sequences are gathered too, each into its own square: in half precision oneDNN takes 0.6 to 0.75 of the time where
a head's rows are neighbours, and generates code for each width that it meets. In float32 the copies cost 4 % of
attention's time more than they save; views in place were a second way through all of it.

Shapes: T tokens in the batch, S sequences, S1 = S + 1; in squares: H heads, K width of a head; p parts of a token
(query, key and value are 3); n sequences in squares of one width W; P rows in all squares, one for each head of each
token or filler.
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
"""The longest sequence, in tokens, that shares products."""
_TILE = 16  # widths are multiples of it: an AMX tile has 16 rows
_TINY = 4  # except for the width of sequences of up to 4 tokens, which fill up batches


class EqualLengths(NamedTuple):
    """A run of neighbouring sequences of one length: their tokens reshape to [count, length] without a copy."""

    start: int
    sequences: int
    length: int


class Square(NamedTuple):
    """Short sequences of one width, or a long one."""

    width: int
    lengths_n: Tensor


class Squares:
    """All sequences of a batch, gathered by loops.cpp: rows are ordered by square, sequence, head and place."""

    def __init__(self, runs: tuple[EqualLengths, ...]) -> None:
        """Take the batch as `Sequences.groups`: first token, number of sequences and length of each run."""
        _, counts, lengths = np.array(runs).T
        length_S = np.repeat(lengths, counts)
        width_S = np.where(length_S <= _TINY, _TINY, -(-length_S // _TILE) * _TILE)
        order_S = np.argsort(width_S, kind="stable")
        start_S, length_S, width_S = (np.cumsum(length_S) - length_S)[order_S], length_S[order_S], width_S[order_S]
        self._places = int(width_S.sum())
        first_S = np.cumsum(width_S) - width_S
        self._table_S4 = torch.from_numpy(np.stack((start_S, length_S, width_S, first_S), 1))
        own_S = np.flatnonzero((np.diff(width_S, prepend=0) > 0) | (width_S > SHORT))  # where a square begins
        self._squares = [
            Square(int(width_S[first]), torch.from_numpy(length_S[first:end]))
            for first, end in zip(own_S, [*own_S[1:], len(width_S)], strict=True)
        ]

    def gather(self, flat_TpHK: Tensor, zero: bool = False) -> Tensor:
        """Return the rows of all squares: [T, p, H, K] in, [p, P, K] out.

        Filler repeats its sequence's last token, so that not even a NaN leaves a sequence; or it is 0.
        """
        parts, heads, width = flat_TpHK.shape[1:]
        rows_pPK = flat_TpHK.new_empty((parts, heads * self._places, width))
        self._copy("gather", flat_TpHK.contiguous(), rows_pPK, flat_TpHK.shape, int(zero))
        return rows_pPK

    def scatter(self, rows_pPK: Tensor, into_TpHK: Tensor) -> None:
        """Write the rows of all squares to their tokens, without filler: the reverse of `gather`."""
        self._copy("scatter", rows_pPK, into_TpHK, into_TpHK.shape)

    def _copy(self, name: str, given: Tensor, into: Tensor, shape_TpHK: torch.Size, *zero: int) -> None:
        loops.run(name, given, into, self._table_S4, len(self._table_S4), *shape_TpHK[1:], self._places, *zero)

    def split(self, rows: list[Tensor], heads: int) -> Iterator[tuple[Square, tuple[Tensor, ...]]]:
        """Yield each square with its part, [n H, W, K], of each tensor [P, K]: views, to write into."""
        sizes = [heads * len(square.lengths_n) * square.width for square in self._squares]
        parts = zip(*(rows_PK.split(sizes) for rows_PK in rows), strict=True)
        for square, own in zip(self._squares, parts, strict=True):
            yield square, tuple(part.unflatten(0, (-1, square.width)) for part in own)


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
    def squares(self) -> Squares:
        """Return the sequences in squares for CPU attention, laid out once for all layers and both passes."""
        return Squares(self.groups)

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
