"""Reduce-scatter and all-gather one flat buffer in place: every rank ends with its slice of the sum, or with all.

A buffer is cut into equal slices, one a rank. With N nodes of L ranks, slice l N + n belongs to local rank l of node n:
then both stages of a hierarchical exchange move contiguous memory.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import distributed

Wait = Callable[[], object]
"""Waits for the collective that was started; on CUDA the stream waits, not the host."""

# torch 2.13 renames both, and warns about the old names
reduce_scatter: Callable[..., Any] = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)
all_gather: Callable[..., Any] = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
"""Both take (output, input, group=, async_op=), flat tensors that may share memory, so nothing is copied."""


class Exchange(Protocol):
    """Moves buffers whose elements are a multiple of the number of ranks."""

    place: int
    """The index of this rank's slice."""

    def sum_slice(self, buffer: torch.Tensor) -> Wait:
        """Start summing over the ranks into this rank's slice; the other slices become undefined."""

    def gather(self, buffer: torch.Tensor) -> Wait:
        """Start filling every slice with its owner's content."""


def place_of(rank: int, ranks: int, local_size: int | None) -> int:
    """Return the index of a rank's slice, with nodes of `local_size` ranks, or ignoring nodes (None)."""
    if local_size is None:
        return rank
    node, local_rank = divmod(rank, local_size)
    return local_rank * (ranks // local_size) + node


def exchange(hierarchical: bool, local_size: int) -> Exchange:
    """Return the exchange over all ranks, numbered node by node with `local_size` ranks each.

    Collective: it may build process groups.
    """
    return NodeExchange(local_size) if hierarchical else FlatExchange()


def slice_of(buffer: torch.Tensor, place: int, ranks: int) -> torch.Tensor:
    """Return the slice of a buffer at `place`, on the same memory."""
    length = buffer.numel() // ranks
    return buffer.narrow(0, place * length, length)


class FlatExchange:
    """One collective over all ranks."""

    def __init__(self) -> None:
        self._ranks = distributed.get_world_size()
        self.place = distributed.get_rank()

    def sum_slice(self, buffer: torch.Tensor) -> Wait:
        """See `Exchange`."""
        return _wait(reduce_scatter(slice_of(buffer, self.place, self._ranks), buffer, async_op=True))

    def gather(self, buffer: torch.Tensor) -> Wait:
        """See `Exchange`."""
        return _wait(all_gather(buffer, slice_of(buffer, self.place, self._ranks), async_op=True))


class NodeExchange:
    """Exchange within each node, then across nodes; gathering reverses the order.

    For a buffer of n bytes, each of a node's L ranks sends n / L between nodes; a flat ring sends all of it. On CUDA
    both stages run on a separate stream; gloo waits for each.
    """

    def __init__(self, local_size: int) -> None:
        ranks = distributed.get_world_size()
        self._local_size, self._nodes = local_size, ranks // local_size
        self._node, self._local_rank = divmod(distributed.get_rank(), local_size)
        self.place = place_of(distributed.get_rank(), ranks, local_size)
        nodes = [list(range(first, first + local_size)) for first in range(0, ranks, local_size)]
        self._within = _own_group(nodes, self._node)
        self._across = _own_group([list(group) for group in zip(*nodes, strict=True)], self._local_rank)
        self._stream = torch.cuda.Stream() if torch.cuda.is_initialized() else None

    def sum_slice(self, buffer: torch.Tensor) -> Wait:
        """See `Exchange`."""
        chunk = slice_of(buffer, self._local_rank, self._local_size)
        with self._aside():
            reduce_scatter(chunk, buffer, group=self._within)
            reduce_scatter(slice_of(chunk, self._node, self._nodes), chunk, group=self._across)
        return self._join

    def gather(self, buffer: torch.Tensor) -> Wait:
        """See `Exchange`."""
        chunk = slice_of(buffer, self._local_rank, self._local_size)
        with self._aside():
            all_gather(chunk, slice_of(chunk, self._node, self._nodes), group=self._across)
            all_gather(buffer, chunk, group=self._within)
        return self._join

    def _aside(self) -> Any:
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._stream)

    def _join(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


def _own_group(groups: list[list[int]], own: int) -> distributed.ProcessGroup:
    """Build a process group for each list of ranks and return this rank's. Collective."""
    return [distributed.new_group(ranks) for ranks in groups][own]


def _wait(work: Any) -> Wait:
    wait: Wait = work.wait
    return wait
