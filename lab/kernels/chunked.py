"""Count launches and bytes of our own Triton optimizer kernels, which need addresses, which fake tensors don't have.

tests/optim/test_triton.py checks the limits on their machine code.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any
from unittest import mock

from torch import Tensor

_BYTES_AN_ELEMENT = {"update_chunks": 28, "apply_chunks": 12, "square_chunks": 4, "norm_tensors": 0}
"""Reads and writes per element: 4 reads and 3 writes (gradient, weight, moments); 2 reads and 1 write (weight, update);
1 read; one number a chunk, counted as 0."""
_WRITES_COPIES = "apply_chunks"
"""The kernel of LAMB that writes weights and their 16-bit copies."""
_ALIGNED = 16


class ChunkedKernels:
    """Counts launches and bytes of the kernels."""

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()
        """Launches by the kernel's name."""
        self.bytes = 0.0
        # sizes of chunks by the id of their table, which the plan keeps alive
        self._elements: dict[int, float] = {}
        self._bytes_of_copies: dict[int, float] = {}

    def clear(self) -> None:
        """Count from 0."""
        self.launches.clear()
        self.bytes = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Within the context, let kernels count instead of running, and let plans accept fake tensors."""
        from bertbench.optim import chunks, triton_step  # noqa: PLC0415 - Triton, which is optional

        def planned(lists: Sequence[Sequence[Tensor]], chunk: int, companions: chunks.Companions = ()) -> chunks.Chunks:
            plan = chunks.Chunks(lists, chunk, companions)
            # as in a run, in which gradients stay in their buckets
            plan.are_of = lambda lists, companions=(): True  # type: ignore[method-assign]
            table = id(plan.tables[0])
            copies = [copy for copy in chain.from_iterable(companions) if copy is not None]
            self._elements[table] = sum(tensor.numel() for tensor in lists[0]) / plan.count
            self._bytes_of_copies[table] = sum(copy.nbytes for copy in copies) / plan.count
            return plan

        counting: dict[str, Any] = {name: _Kernel(name, self._launched) for name in _BYTES_AN_ELEMENT}
        with (
            mock.patch.multiple(triton_step, Chunks=planned, **counting),
            mock.patch.object(Tensor, "data_ptr", lambda tensor: _ALIGNED * id(tensor)),
        ):
            yield

    def _launched(self, name: str, programs: int, table: object) -> None:
        self.launches[name] += 1
        self.bytes += _BYTES_AN_ELEMENT[name] * self._elements.get(id(table), 0.0) * programs
        if name == _WRITES_COPIES:
            self.bytes += self._bytes_of_copies.get(id(table), 0.0) * programs


@dataclass
class _Kernel:
    """Replaces a Triton kernel."""

    name: str
    launched: Callable[[str, int, object], None]

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda table, *_, **__: self.launched(self.name, grid[0], table)
