"""Plan a multi-tensor kernel: lists of tensors as a table of addresses, cut into chunks, one a program."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bertbench.common.scalars import Scalar, scalar_tensor

_MOST_ELEMENTS = 2**31
_ALIGNED_BYTES, _ALIGNED_ELEMENTS = 16, 4  # the widest load of a GPU


class Chunks:
    """Equally long lists of flat fp32 tensors; tensors at the same index have the same size.

    The plan reorders tensors, aligned ones first; `norms` that a kernel reads or writes keep the lists' order. All is
    on the tensors' device.
    """

    def __init__(self, lists: Sequence[Sequence[Tensor]], chunk: int) -> None:
        self._addresses = _addresses(lists)
        sizes, addresses = np.array([tensor.numel() for tensor in lists[0]]), np.array(self._addresses)
        self._device = lists[0][0].device
        self.size = len(sizes)
        """Tensors of a list."""
        assert sizes.max() < _MOST_ELEMENTS, "kernels count in 32 bits"
        aligned = (sizes % _ALIGNED_ELEMENTS == 0) & (addresses % _ALIGNED_BYTES == 0).all(0)
        order, counts = np.argsort(~aligned, kind="stable"), -(-sizes // chunk)
        stops = np.empty_like(counts)
        stops[order] = counts[order].cumsum()
        firsts, places = stops - counts, order.repeat(counts[order])
        self.count = len(places)
        """Chunks of all tensors."""
        wide = int(counts[aligned].sum())
        both = (0, wide, True), (wide, self.count - wide, False)
        self.launches = tuple(launch for launch in both if launch[1])
        """For each launch its first chunk, their number, and whether loads of their tensors can be 16 bytes wide."""
        numbers = np.arange(self.count) - firsts[places]
        self.tables = self._tensor(np.vstack((sizes, addresses))), self._tensor(places), self._tensor(numbers)
        """Sizes and addresses [1 + lists, tensors]; for each chunk, its tensor and its number within that tensor."""
        self.chunk_ranges = self._tensor(np.stack((firsts, stops)))
        """First chunk of each tensor, and the one after its last: [2, tensors]."""
        self._one = torch.ones((), device=self._device)

    def are_of(self, lists: Sequence[Sequence[Tensor]]) -> bool:
        """Return whether these are the planned tensors, at the same addresses."""
        return self._addresses == _addresses(lists)

    def new(self, *shape: int) -> Tensor:
        """Return fp32 memory on the tensors' device."""
        return torch.empty(shape, device=self._device)

    def number(self, scalar: Scalar | None) -> Tensor:
        """Return a number as a tensor for a kernel to load, 1 for None; doesn't wait for the device."""
        return self._one if scalar is None else scalar_tensor(scalar, self._device)

    def _tensor(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self._device)


def _addresses(lists: Sequence[Sequence[Tensor]]) -> list[list[int]]:
    return [[tensor.data_ptr() for tensor in tensors] for tensors in lists]
