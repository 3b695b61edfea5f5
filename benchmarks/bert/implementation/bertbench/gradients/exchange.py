"""Sum one flat buffer over the ranks in place: in full on every rank, or one slice per rank.

A buffer is divided into `slices` equal slices, one for each rank, in the order of ranks.
"""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from bertbench.common.phase_clock import ALL_REDUCE, in_phase
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

    def __init__(self, shared: SharedMemory) -> None:
        self._shared = shared

    def sum(self, buffer: Tensor) -> Wait:
        """Sum, and return when the sum is complete; see `Exchange`."""
        with in_phase(ALL_REDUCE):
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


class AllReduceByNode(Exchange):
    """Scatters the sum within each node, sums across nodes, gathers within nodes. Creation is collective.

    For a buffer of n bytes, each of the L ranks in a node sends n / L between nodes; in a flat ring, it would send n
    bytes. On CUDA, the stages run on a separate stream; gloo waits for each stage.
    """

    def __init__(self, local_size: int, timeout: timedelta | None = None) -> None:
        """Make the groups; ranks are numbered node by node, and each node has `local_size` of them.

        `timeout` is that of their collectives; None means torch's own.
        """
        node, local_rank = divmod(distributed.get_rank(), local_size)
        self._local_rank = local_rank
        self._local_size = local_size
        first = node * local_size
        self._within_node = _build_group(range(first, first + local_size), timeout)
        self._across_nodes = _build_group(range(local_rank, distributed.get_world_size(), local_size), timeout)
        self._stream = torch.cuda.Stream() if torch.cuda.is_initialized() else None

    def sum(self, buffer: Tensor) -> Wait:
        """Start the three stages; see `Exchange`."""
        padding = -buffer.numel() % self._local_size
        padded = torch.nn.functional.pad(buffer, (0, padding)) if padding else buffer
        share = slice_of(padded, self._local_rank, self._local_size)
        with self._on_separate_stream(padded):
            reduce_scatter(share, padded, group=self._within_node)
            distributed.all_reduce(share, group=self._across_nodes)
            all_gather(padded, share, group=self._within_node)

        def join() -> None:
            if self._stream is not None:
                torch.cuda.current_stream().wait_stream(self._stream)
            if padding:
                buffer.copy_(padded[: buffer.numel()])

        return join

    def _on_separate_stream(self, buffer: Tensor) -> Any:
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream())
        buffer.record_stream(self._stream)
        return torch.cuda.stream(self._stream)


def choose_exchange(
    sharded: bool, hierarchical: bool, local_size: int, shared: SharedMemory | None, timeout: timedelta | None = None
) -> Exchange:
    """Return the exchange over all ranks, which are numbered node by node, `local_size` on each. Collective.

    `shared` is the memory in which ranks sum whole buffers; None means torch's collectives. `timeout` is that of
    collectives in new groups; None means torch's own.
    """
    if sharded:
        return ReduceScatter()
    if hierarchical:
        return AllReduceByNode(local_size, timeout)
    return Exchange() if shared is None else SharedMemorySum(shared)


def _build_group(ranks: range, timeout: timedelta | None) -> distributed.ProcessGroup:
    """Build this rank's group of these ranks.

    Only they wait for each other: 128 nodes of 8 GPUs have 136 groups, and a rank is in two of them.
    """
    return distributed.new_group(list(ranks), timeout=timeout, use_local_synchronization=True)


def _wait(work: Any) -> Wait:
    wait: Wait = work.wait
    return wait


def _nothing() -> None:
    """Wait for nothing."""
