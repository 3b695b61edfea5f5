"""Describe where each sequence begins and ends in a flat batch of tokens.

Shapes: T tokens in the batch, S sequences, S1 = S + 1.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_TILE = 32  # rows of probabilities are padded to a multiple of this, as in multiply.h


class EqualLengths(NamedTuple):
    """A run of neighbouring sequences of one length; a view of their tokens has the shape [count, length]."""

    start: int
    sequences: int
    length: int


class SequenceTable(NamedTuple):
    """The sequences of a batch, for attention on a CPU."""

    rows_S3: Tensor
    """Each sequence's first token, its length, and the number of a head's probabilities in the sequences before it."""
    probabilities: int
    """The number of a head's probabilities, over all sequences."""


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
        return [
            part.unflatten(0, (group.sequences, group.length)) for part, group in zip(parts, self.groups, strict=True)
        ]

    @cached_property
    def table(self) -> SequenceTable:
        """Return the layout for attention on a CPU; it is made once for all layers and both passes."""
        _, counts, lengths = np.array(self.groups).T
        length_S = np.repeat(lengths, counts)
        probabilities_S = length_S * -(-length_S // _TILE) * _TILE
        first_token_S = np.cumsum(length_S) - length_S
        before_S = np.cumsum(probabilities_S) - probabilities_S
        rows_S3 = torch.from_numpy(np.stack((first_token_S, length_S, before_S), 1))
        return SequenceTable(rows_S3, int(probabilities_S.sum()))

    @classmethod
    def of(cls, lengths_S: np.ndarray) -> "Sequences":
        """Lay out sequences of these lengths in this order; neighbours of equal length share a group.

        Batches are sorted by length, so there is one group for each length.
        """
        cu_seqlens_S1 = np.zeros(len(lengths_S) + 1, dtype=np.int32)
        np.cumsum(lengths_S, out=cu_seqlens_S1[1:])
        groups = []
        start = 0
        for length, equal in groupby(lengths_S.tolist()):
            groups.append(EqualLengths(start, len(list(equal)), length))
            start += groups[-1].sequences * length
        return cls(torch.from_numpy(cu_seqlens_S1), tuple(groups))
