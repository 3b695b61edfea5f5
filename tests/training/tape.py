"""A recording of torch's operations that runs them again on the same memory: a CUDA graph's ways, on a CPU.

As a graph does, it repeats what was launched and none of the Python around it: a number that the host had then stays as
it was, and a result that moved to new memory is read where it was at first.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

_LEAVES_MEMORY_AS_IT_IS = ("empty", "new_empty")


class Operations(TorchDispatchMode):
    """Record every operation in the body, with its arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Sequence[Any] = (), options: Any = None) -> Any:
        answer = function(*arguments, **(options or {}))
        self.calls.append((function, tuple(arguments), options or {}, answer))
        return answer

    @property
    def shapes(self) -> list[tuple[str, list[tuple[int, ...]]]]:
        """Each operation with the shapes of its tensors."""
        return [
            (function._schema.name, [tuple(tensor.shape) for tensor in _tensors((arguments, options, answer))])
            for function, arguments, options, answer in self.calls
        ]


def tape(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Do the work once; return a function that repeats its operations and returns the same tensor."""
    with Operations() as operations:
        answer = work()

    @torch.no_grad()
    def replay() -> Tensor:
        for function, arguments, options, given in operations.calls:
            name = function._schema.name.partition("::")[2]
            if function.is_view or name.startswith(_LEAVES_MEMORY_AS_IT_IS):
                continue
            again = function(*arguments, **options)
            if function.namespace == "c10d":
                again[-1].wait()
            for old, new in zip(_tensors(given), _tensors(again), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)
        return answer

    return replay


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(values) if isinstance(leaf, Tensor)]
