"""Watch the torch operations that run: launches, copies, transfers and reads."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Watching(TorchDispatchMode):
    """In the body, call `see` with each operation of torch and its arguments before it runs."""

    def __init__(self, see: Callable[[Any, Sequence[Any]], object]) -> None:
        super().__init__()
        self._see = see

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Sequence[Any] = (), options: Any = None) -> Any:
        self._see(function, arguments)
        return function(*arguments, **(options or {}))


def noting(names: list[str]) -> Watching:
    """Return a function that appends the names of operations, such as aten::mul_, in order."""
    return Watching(lambda function, _: names.append(function._schema.name))
