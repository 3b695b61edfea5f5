"""Count the bytes that a rank sends in each dimension of a layout, from its operations.

A collective counts as its ring algorithm sends: an all-reduce of n bytes over g ranks 2 (g - 1) / g n, a gather or a
reduce-scatter of n bytes in all (g - 1) / g n. A send to one rank counts once.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, distributed
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from bertbench.parallel.process_groups import ProcessGroups

# Factor on the bytes of an operation's input, on g ranks, by a part of its name
_SENT = {
    "allreduce": lambda g: 2 * (g - 1) / g,
    "allgather": lambda g: g - 1,
    "reducescatter": lambda g: (g - 1) / g,
    "send": lambda _: 1.0,
}
_FUNCTIONAL = "_c10d_functional"


class Traffic(TorchDispatchMode):
    """Add up the bytes that this rank sends in the body, without the few numbers of norms and losses."""

    def __init__(self, groups: ProcessGroups) -> None:
        super().__init__()
        self._names = {groups.data.group_name: "data"}
        if groups.layout.pipeline > 1:
            self._names[groups.tied.group_name] = "tied words"
        self._sent: dict[str, float] = defaultdict(float)

    @property
    def sent(self) -> dict[str, int]:
        """Return the bytes by dimension."""
        return {dimension: round(size) for dimension, size in self._sent.items()}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, so that torch.compile ignores this mode: compiled pieces send nothing."""
        return True

    def __torch_dispatch__(
        self,
        function: Any,
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Count a collective on plain tensors; DTensor calls it again with those."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if getattr(function, "namespace", "") in ("c10d", _FUNCTIONAL):
            self._count(function, arguments)
        return function(*arguments, **(options or {}))

    def _count(self, operation: Any, arguments: Sequence[Any]) -> None:
        name = operation.__name__
        factor = next((factor for part, factor in _SENT.items() if part in name.replace("_", "")), None)
        if factor is None:
            return
        group = _group(arguments)
        if operation.namespace == _FUNCTIONAL:
            dimension = "tensor"  # only tensor parallelism calls these
        else:
            dimension = "pipeline" if name.startswith("send") else self._names.get(group.group_name, "")
        # these take their output first
        into = name.startswith(("_allgather_base", "_reduce_scatter_base"))
        tensors = _tensors(arguments[1] if into else arguments[0])
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if dimension:
            self._sent[dimension] += factor(group.size()) * size


def _group(arguments: Sequence[Any]) -> distributed.ProcessGroup:
    """Return the group: functional operations name it last; the others take it as their first script object."""
    names = [argument for argument in arguments if isinstance(argument, str)]
    if names:
        return _resolve_process_group(cast(Any, names[-1]))
    return distributed.ProcessGroup.unbox(next(filter(lambda it: isinstance(it, torch.ScriptObject), arguments)))


def _tensors(argument: Any) -> list[Tensor]:
    return [argument] if isinstance(argument, Tensor) else list(argument)
