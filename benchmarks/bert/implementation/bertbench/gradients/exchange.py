"""Sum one flat buffer over the ranks in place: in full on every rank, or one slice per rank.

A buffer is divided into `slices` equal slices, one for each rank, in the order of ranks.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, distributed

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import WAIT
from bertbench.distributed.collectives import all_gather, reduce_scatter
from bertbench.distributed.shared_memory import SharedMemory

Wait = Callable[[], object]
"""Waits for the collective that was started; on CUDA, the stream waits and the host doesn't."""


def slice_of(buffer: Tensor, place: int, slices: int) -> Tensor:
    """Return the slice of a buffer at `place`, as a view."""
    length = buffer.numel() // slices
    return buffer.narrow(0, place * length, length)


class Exchange:
    """Sums by one all-reduce, so that every rank owns the whole buffer. Other exchanges override the methods."""

    transport = "collectives"
    """How buffers travel: by torch's `collectives`, or through `shared memory`."""
    slices = 1
    """The number of slices in a buffer; the number of elements is a multiple of it."""
    place = 0
    """The index of this rank's own slice."""

    def sum(self, buffer: Tensor) -> Wait:
        """Start to sum this rank's slice over all ranks; the other slices become undefined."""
        return _wait(distributed.all_reduce(buffer, async_op=True))

    def gather(self, buffer: Tensor) -> Wait:
        """Start to fill every slice with its owner's content."""
        del buffer
        return _nothing


class SharedMemorySum(Exchange):
    """Sums whole buffers in memory that the ranks of one machine share."""

    transport = "shared memory"

    def __init__(self, shared: SharedMemory) -> None:
        self._shared = shared

    def sum(self, buffer: Tensor) -> Wait:
        """Sum, and return when the sum is complete; see `Exchange`."""
        with in_phase(WAIT):
            self._shared.sum(buffer)
        return _nothing


class ReduceScatter(Exchange):
    """Sums by one collective over all ranks; each rank owns a slice."""

    def __init__(self) -> None:
        self.slices = distributed.get_world_size()
        self.place = distributed.get_rank()

    def sum(self, buffer: Tensor) -> Wait:
        """Start a reduce-scatter; see `Exchange`."""
        return _wait(reduce_scatter(slice_of(buffer, self.place, self.slices), buffer, async_op=True))

    def gather(self, buffer: Tensor) -> Wait:
        """Start an all-gather; see `Exchange`."""
        return _wait(all_gather(buffer, slice_of(buffer, self.place, self.slices), async_op=True))


def choose_exchange(sharded: bool, shared: SharedMemory | None) -> Exchange:
    """Return the exchange over all ranks.

    `shared` is the memory in which ranks sum whole buffers; None means torch's collectives.
    """
    if sharded:
        return ReduceScatter()
    return Exchange() if shared is None else SharedMemorySum(shared)


def _wait(work: Any) -> Wait:
    wait: Wait = work.wait
    return wait


def _nothing() -> None:
    """Wait for nothing."""
