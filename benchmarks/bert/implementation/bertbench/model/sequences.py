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

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

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

    tokens_nW: np.ndarray
    """Places in the flat batch; filler repeats its sequence's last token, so that not even a NaN leaves a sequence."""
    filler_nW: np.ndarray
    mask_n11W: Tensor | None
    """-inf at the filler's keys, 0 elsewhere; None where all sequences have the same keys."""
    keys: int
    """The first place that has no key in any sequence."""


class Indices(NamedTuple):
    """Where rows of K numbers come from and go to, for a number of parts and heads."""

    gather: Tensor
    """[p P]: the row of [T, p, H] for each row of [p, P]; P is ordered by sequence, then head, then place."""
    scatter: Tensor
    """[T p H]: the row of [p, P] for each row of [T, p, H]."""
    filler: Tensor
    """The rows of [P] that are filler."""


class Squares:
    """All sequences of a batch, gathered."""

    def __init__(self, runs: tuple[EqualLengths, ...]) -> None:
        """Take the batch as `Sequences.groups`: first token, number of sequences and length of each run."""
        _, counts, lengths = np.array(runs).T
        length_n = np.repeat(lengths, counts)
        start_n = np.cumsum(length_n) - length_n
        width_n = np.where(length_n <= _TINY, _TINY, -(-length_n // _TILE) * _TILE)
        self.squares = []
        for width in np.unique(width_n):
            places = np.flatnonzero(width_n == width)
            for place_n in [places] if width <= SHORT else places[:, None]:
                self.squares.append(_square(start_n[place_n], length_n[place_n], int(width)))
        self._indices: dict[tuple[int, int], Indices] = {}

    def gather(self, flat_TpHK: Tensor) -> Tensor:
        """Return the rows of all squares: [T, p, H, K] in, [p, P, K] out."""
        parts, heads = flat_TpHK.shape[1:3]
        return flat_TpHK.flatten(0, 2).index_select(0, self.indices(parts, heads).gather).unflatten(0, (parts, -1))

    def scatter(self, rows_pPK: Tensor, into_TpHK: Tensor) -> None:
        """Write the rows of all squares to their tokens, without filler: the reverse of `gather`."""
        parts, heads, width = into_TpHK.shape[1:]
        index = self.indices(parts, heads).scatter
        torch.index_select(rows_pPK.flatten(0, 1), 0, index, out=into_TpHK.view(-1, width))

    def clear_filler(self, rows_PK: Tensor, heads: int) -> None:
        """Zero the rows of filler."""
        rows_PK.index_fill_(0, self.indices(1, heads).filler, 0)

    def split(self, rows: list[Tensor], heads: int) -> Iterator[tuple[Square, tuple[Tensor, ...]]]:
        """Yield each square with its part, [n H, W, K], of each tensor [P, K]: views, to write into."""
        sizes = [heads * square.tokens_nW.size for square in self.squares]
        parts = zip(*(rows_PK.split(sizes) for rows_PK in rows), strict=True)
        for square, own in zip(self.squares, parts, strict=True):
            yield square, tuple(part.unflatten(0, (-1, square.tokens_nW.shape[1])) for part in own)

    def indices(self, parts: int, heads: int) -> Indices:
        """Return the indices for tokens of `parts` parts and `heads` heads, made once."""
        if (parts, heads) not in self._indices:
            self._indices[parts, heads] = self._make_indices(parts, heads)
        return self._indices[parts, heads]

    def _make_indices(self, parts: int, heads: int) -> Indices:
        part_p, head_H = np.arange(parts), np.arange(heads)
        sources, fillers, tokens, firsts, steps, start = [], [], [], [], [], 0
        for square in self.squares:
            sequences, width = square.tokens_nW.shape
            sources.append((square.tokens_nW[:, None] * (parts * heads) + head_H[:, None]).ravel())
            first_nW = start + heads * width * np.arange(sequences)[:, None] + np.arange(width)
            fillers.append((first_nW[square.filler_nW][:, None] + width * head_H).ravel())
            real_nW = ~square.filler_nW
            tokens.append(square.tokens_nW[real_nW])
            firsts.append(first_nW[real_nW])
            steps.append(np.full(len(firsts[-1]), width))
            start += heads * first_nW.size
        order_T = np.argsort(np.concatenate(tokens))
        first_T, step_T = (np.concatenate(numbers)[order_T] for numbers in (firsts, steps))
        row_TpH = first_T[:, None, None] + start * part_p[:, None] + step_T[:, None, None] * head_H
        gathered = np.concatenate(sources) + heads * part_p[:, None]
        return Indices(*map(torch.from_numpy, (gathered.ravel(), row_TpH.ravel(), np.concatenate(fillers))))


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


def _square(start_n: np.ndarray, length_n: np.ndarray, width: int) -> Square:
    place_W = np.arange(width)
    filler_nW = place_W >= length_n[:, None]
    mask_nW = torch.from_numpy(np.where(filler_nW, np.float32(-math.inf), np.float32(0)))
    return Square(
        start_n[:, None] + np.minimum(place_W, length_n[:, None] - 1),
        filler_nW,
        mask_nW[:, None, None] if length_n.min() < length_n.max() else None,
        int(length_n.max()),
    )
