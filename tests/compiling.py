"""Count compilations of torch.compile with a backend that generates no code, because Inductor takes seconds each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import torch

_Counter = TypeVar("_Counter")


@contextmanager
def compiled_by(counter: _Counter) -> Iterator[_Counter]:
    """In the body, compile with one of torch._dynamo.testing's counters, whatever mode is requested."""
    original = torch.compile

    def by_counter(function: Any, **options: Any) -> Any:
        kept = {name: options[name] for name in ("dynamic", "fullgraph") if name in options}
        return original(function, backend=counter, **kept)  # type: ignore[call-overload]

    torch._dynamo.reset()
    with mock.patch.object(torch, "compile", by_counter):
        yield counter
    torch._dynamo.reset()
