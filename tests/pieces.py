"""Pieces of tensors that ranks hold, and the whole tensors assembled from the pieces of all ranks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from bertbench.distributed.sliced_tensor import SlicedTensor
from bertbench.model.logical_tensors import whole_tensor


class Piece(NamedTuple):
    """A rectangle of a tensor."""

    shape: tuple[int, ...]
    """That of the whole tensor."""
    offsets: tuple[int, ...]
    content: np.ndarray


Pieces = dict[str, list[Piece]]
"""By name of the tensor."""


def pieces_of(tensors: Mapping[str, Tensor]) -> Pieces:
    """Copy this rank's pieces of the tensors; a whole tensor is one piece."""
    pieces: Pieces = {}
    for name, tensor in tensors.items():
        shape = tuple(tensor.shape)
        if isinstance(tensor, SlicedTensor):
            pieces[name] = [Piece(shape, offsets, part.numpy().copy()) for offsets, part in tensor.rectangles]
        else:
            origin = (0,) * len(shape)
            pieces[name] = [Piece(shape, origin, whole_tensor(tensor).numpy().copy())]
    return pieces


def put_together(ranks: Iterable[Pieces]) -> dict[str, np.ndarray]:
    """Return the whole tensors; raises AssertionError for an element that no rank holds."""
    pieces: Pieces = defaultdict(list)
    for rank in ranks:
        for name, held in rank.items():
            pieces[name] += held
    wholes = {}
    for name, held in pieces.items():
        whole = np.full(held[0].shape, np.nan, held[0].content.dtype)
        for piece in held:
            whole[places_of(piece)] = piece.content
        assert not np.isnan(whole).any(), f"no rank holds all of {name}"
        wholes[name] = whole
    return wholes


def places_of(piece: Piece) -> tuple[slice, ...]:
    """Return where a piece lies in its tensor."""
    return tuple(slice(start, start + size) for start, size in zip(piece.offsets, piece.content.shape, strict=True))
