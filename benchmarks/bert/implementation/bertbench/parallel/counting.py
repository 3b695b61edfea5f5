"""Bytes that a rank sends in each dimension of a layout, counted as the operations are called.

A collective counts as its ring algorithm sends: an all-reduce of n bytes over g ranks 2 (g - 1) / g n, a gather or a
reduce-scatter of n bytes in all (g - 1) / g n. What is sent to one rank counts as it is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import distributed
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from bertbench.parallel.grid import Grid

# By a part of the operation's name, on g ranks: factor on the bytes of the tensor that it takes in
_SENT = {
    "all_reduce": lambda g: 2 * (g - 1) / g,
    "allreduce": lambda g: 2 * (g - 1) / g,
    "all_gather": lambda g: g - 1,
    "allgather": lambda g: g - 1,
    "reduce_scatter": lambda g: (g - 1) / g,
    "send": lambda _: 1.0,
}
_COLLECTIVES = ("c10d", "_c10d_functional")


class Traffic(TorchDispatchMode):
    """While it is entered, adds up what this rank sends; `sent` has bytes by dimension."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        groups = {"tensor": grid.tensor, "pipeline": grid.pipeline, "data": grid.data, "tied words": grid.tied}
        self._names = {group.group_name: name for name, group in groups.items() if group is not None}
        self.sent: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> Any:
        """Count a collective on plain tensors; a DTensor first turns into those."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if getattr(function, "namespace", "") in _COLLECTIVES:
            self._count(function.__name__, arguments)
        return function(*arguments, **(options or {}))

    def _count(self, name: str, arguments: Sequence[Any]) -> None:
        factor = next((factor for part, factor in _SENT.items() if part in name), None)
        group = next(filter(None, map(_group, arguments)), None)
        if factor is None or group is None or group.group_name not in self._names:
            return
        # the c10d operations that write into a tensor have it first, in the functional ones the input is first
        into = name.startswith(("_allgather_base", "_reduce_scatter_base"))
        tensors = _tensors(arguments[1] if into else arguments[0])
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self.sent[self._names[group.group_name]] += round(factor(group.size()) * size)


def _group(argument: Any) -> distributed.ProcessGroup | None:
    if isinstance(argument, torch.ScriptObject):
        return distributed.ProcessGroup.unbox(argument)
    return _resolve_process_group(argument) if isinstance(argument, str) and argument.isdecimal() else None


def _tensors(argument: Any) -> list[torch.Tensor]:
    return [argument] if isinstance(argument, torch.Tensor) else list(argument)
