"""Describe where each sequence begins and ends in a flat batch of tokens.

Shapes: T tokens in the batch, S sequences, S1 = S + 1.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from bertbench.model.squares import Squares


class EqualLengths(NamedTuple):
    """A run of neighbouring sequences of one length: their tokens reshape to [count, length] without a copy."""

    start: int
    sequences: int
    length: int


@dataclass(frozen=True, eq=False)
class Sequences:
    """The layout of a flat batch: sequence i owns tokens cu_seqlens[i] up to, not including, cu_seqlens[i + 1]."""

    cu_seqlens_S1: torch.Tensor
    groups: tuple[EqualLengths, ...]

    @property
    def longest(self) -> int:
        """Return the length of the longest sequence."""
        return max(group.length for group in self.groups)

    def grouped(self, flat_T: torch.Tensor) -> list[torch.Tensor]:
        """Return views of a tensor of all tokens, [sequences, length, ...] for each group."""
        parts = flat_T.split([group.sequences * group.length for group in self.groups])
        return [part.unflatten(0, group[1:]) for part, group in zip(parts, self.groups, strict=True)]

    @cached_property
    def short(self) -> Squares:
        """Return the short sequences in squares for CPU attention, laid out once for all layers and both passes."""
        return Squares(self.groups, every=False)

    @cached_property
    def squares(self) -> Squares:
        """Return all sequences in squares, for CPU attention in half precision."""
        return Squares(self.groups, every=True)

    @classmethod
    def of(cls, lengths_S: np.ndarray) -> "Sequences":
        """Lay out sequences of these lengths, in this order; equal neighbours share a group.

        Batches come sorted by length, so each different length makes one group.
        """
        cu_seqlens_S1 = np.zeros(len(lengths_S) + 1, dtype=np.int32)
        np.cumsum(lengths_S, out=cu_seqlens_S1[1:])
        changes = np.flatnonzero(np.diff(lengths_S)) + 1
        firsts = np.concatenate(([0], changes))
        counts = np.diff(np.concatenate((firsts, [len(lengths_S)])))
        groups = tuple(
            EqualLengths(int(cu_seqlens_S1[first]), int(count), int(lengths_S[first]))
            for first, count in zip(firsts, counts, strict=True)
        )
        return cls(torch.from_numpy(cu_seqlens_S1), groups)
