"""Plan a multi-tensor kernel: a table holds the tensors' addresses, and each program processes one chunk of a tensor.

This isn't part of triton_step.py, so that a machine without Triton can import it.
Shapes: L lists, T tensors of a list, C chunks of all tensors.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertbench.common.scalars import Scalar, scalar_tensor

Companions = Sequence[Sequence[Tensor | None]]
"""Further lists, with None for tensors that have no companion."""

_MOST_ELEMENTS = 2**31
_ALIGNED_BYTES = 16  # the widest load of a GPU
_ALIGNED_ELEMENTS = 4


class KernelLaunch(NamedTuple):
    """One launch of a kernel, for some of the chunks."""

    first_chunk: int
    chunks: int
    aligned: bool
    """Whether 16-byte loads of their tensors are possible."""


class ChunkTables(NamedTuple):
    """The tables, on the tensors' device, from which a program finds its chunk."""

    sizes_and_addresses: Tensor
    """[1 + lists + companions, tensors]."""
    tensor_of_chunk: Tensor
    """For each chunk, the number of its tensor."""
    number_in_tensor: Tensor
    """For each chunk, its number within its tensor."""


class Chunks:
    """Lists of flat tensors; all lists are equally long, and tensors at the same index have the same size.

    The table holds address 0 for a companion that is None. The plan reorders tensors, aligned ones first, but the
    `norms` that a kernel reads or writes are in the lists' order. Everything is on the tensors' device.
    """

    def __init__(self, lists: Sequence[Sequence[Tensor]], chunk: int, companions: Companions = ()) -> None:
        self._addresses = _addresses(lists, companions)
        self._device = lists[0][0].device
        sizes_T = np.array([tensor.numel() for tensor in lists[0]])
        addresses_LT = np.array(self._addresses)
        assert sizes_T.max() < _MOST_ELEMENTS, "kernels count in 32 bits"
        self.size = len(sizes_T)
        """The number of tensors in a list."""

        aligned_T = (sizes_T % _ALIGNED_ELEMENTS == 0) & (addresses_LT % _ALIGNED_BYTES == 0).all(0)
        chunks_T = -(-sizes_T // chunk)
        aligned_first = np.argsort(~aligned_T, kind="stable")
        ends_T = np.empty_like(chunks_T)
        ends_T[aligned_first] = chunks_T[aligned_first].cumsum()
        begins_T = ends_T - chunks_T
        self.chunk_ranges = self._tensor(np.stack((begins_T, ends_T)))
        """Each tensor's first chunk, and the chunk after its last: [2, tensors]."""

        tensor_C = aligned_first.repeat(chunks_T[aligned_first])
        self.count = len(tensor_C)
        """The number of chunks of all tensors."""
        number_in_tensor_C = np.arange(self.count) - begins_T[tensor_C]
        self.tables = ChunkTables(
            self._tensor(np.vstack((sizes_T, addresses_LT))), self._tensor(tensor_C), self._tensor(number_in_tensor_C)
        )

        aligned_chunks = int(chunks_T[aligned_T].sum())
        launches = (
            KernelLaunch(0, aligned_chunks, True),
            KernelLaunch(aligned_chunks, self.count - aligned_chunks, False),
        )
        self.launches = tuple(launch for launch in launches if launch.chunks)
        self._one = torch.ones((), device=self._device)

    def are_of(self, lists: Sequence[Sequence[Tensor]], companions: Companions = ()) -> bool:
        """Return whether these are the planned tensors, at the same addresses."""
        return self._addresses == _addresses(lists, companions)

    def new(self, *shape: int) -> Tensor:
        """Return new fp32 memory on the tensors' device."""
        return torch.empty(shape, device=self._device)

    def number(self, scalar: Scalar | None) -> Tensor:
        """Return a number as a tensor that a kernel can load (1 for None), without waiting for the device."""
        return self._one if scalar is None else scalar_tensor(scalar, self._device)

    def _tensor(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self._device)


def _addresses(lists: Sequence[Sequence[Tensor]], companions: Companions) -> list[list[int]]:
    return [[0 if tensor is None else tensor.data_ptr() for tensor in tensors] for tensors in (*lists, *companions)]
