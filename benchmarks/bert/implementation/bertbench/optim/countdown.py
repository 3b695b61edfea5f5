"""Report full buckets of gradients during the backward pass, in the same order on all ranks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn


class BucketCountdown:
    """Count the gradients of each bucket and call `ready` with the number of each full bucket, in order.

    The order is that of the buckets, even if gradients arrive in another: collectives must match on all ranks.
    """

    def __init__(self, counts: Sequence[int], ready: Callable[[int], None]) -> None:
        """Expect `counts` gradients of each bucket in a step."""
        self._counts, self._ready, self._paused = counts, ready, False
        self.begin_step()

    def begin_step(self) -> None:
        """Expect all gradients again."""
        self._missing, self._next = list(self._counts), 0

    def end_step(self) -> None:
        """Check that every bucket was filled exactly once since the step began."""
        assert not any(self._missing), "every trained parameter takes part in every step"
        self.begin_step()

    def watch(self, number: int, parameters: Iterable[nn.Parameter]) -> None:
        """Count every gradient of these parameters as one of bucket `number`."""

        def count(_: torch.Tensor) -> None:
            self.arrive(number)

        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(count)

    def arrive(self, number: int) -> None:
        """Count one gradient of a bucket."""
        if self._paused:
            return
        self._missing[number] -= 1
        while self._next < len(self._missing) and not self._missing[self._next]:
            self._next += 1
            self._ready(self._next - 1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing inside the context."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
