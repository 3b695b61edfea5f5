"""A model whose gradients move into flat buckets, each in one launch as soon as a backward pass has filled it.

What DDP does with a launch a parameter: 302 for BERT-Large, which has 38 buckets. They are in the reverse order of
the model's parameters from the first step on; DDP guesses so too, and takes another order from its second step on.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import distributed, nn

from bertbench.optim.arrivals import Arrivals
from bertbench.optim.buckets import bucket_table, starts_of


class FlatBucket:
    """Gradients of some parameters in one piece of memory; see `bucket_sum.Travelling`."""

    def __init__(self, number: int, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        *starts, end = starts_of([parameter.numel() for parameter in parameters])
        self._number, self._buffer = number, torch.zeros(end, device=parameters[0].device)
        self.views = [
            self._buffer.narrow(0, start, parameter.numel()).view(parameter.shape)
            for start, parameter in zip(starts, parameters, strict=True)
        ]

    def index(self) -> int:
        """Return its number."""
        return self._number

    def buffer(self) -> torch.Tensor:
        """Return its content, flat."""
        return self._buffer

    @torch.no_grad()
    def take_in(self) -> None:
        """Move the parameters' gradients here in one launch, where they aren't here already; all of them must exist."""
        places, gradients = [], []
        for view, parameter in zip(self.views, self.parameters, strict=True):
            assert parameter.grad is not None, "every trained parameter takes part in every step"
            if parameter.grad is not view:
                places.append(view)
                gradients.append(parameter.grad)
                parameter.grad = view
        if places:
            torch._foreach_copy_(places, gradients)

    @torch.no_grad()
    def take_weights(self) -> None:
        """Overwrite the parameters by rank 0's; every rank must."""
        torch._foreach_copy_(self.views, self.parameters)
        distributed.broadcast(self._buffer, 0)
        torch._foreach_copy_(self.parameters, self.views)
        self._buffer.zero_()


def flat_buckets(model: nn.Module, bucket_mb: float | None) -> list[FlatBucket]:
    """Return buckets of about `bucket_mb` MiB, DDP's own 25 if None, for a model's trained parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    table = bucket_table(parameters[::-1], bucket_mb)
    return [FlatBucket(number, together) for number, together in enumerate(table)]


class BucketParallel:
    """Calls the model, and hands each bucket on as soon as a backward pass has filled it, in the order of the buckets.

    What DDP is to `comm_hook.Reducer`.
    """

    def __init__(self, model: nn.Module, buckets: Sequence[FlatBucket], hand_on: Callable[[FlatBucket], None]) -> None:
        """All ranks' weights become rank 0's: every rank must call this."""
        self._model, self._buckets, self._hand_on = model, buckets, hand_on
        self._arrivals = Arrivals([len(bucket.parameters) for bucket in buckets], self._full)
        for number, bucket in enumerate(buckets):
            bucket.take_weights()
            self._arrivals.watch(number, bucket.parameters)

    def __call__(self, *inputs: object) -> Any:
        """Return what the model gives."""
        return self._model(*inputs)

    def no_sync(self) -> AbstractContextManager[None]:
        """Let backward passes inside only add to the gradients."""
        return self._arrivals.paused()

    def zero_grad(self, set_to_none: bool) -> None:
        """Make every gradient zero or None."""
        self._model.zero_grad(set_to_none)

    def _full(self, number: int) -> None:
        bucket = self._buckets[number]
        bucket.take_in()
        self._hand_on(bucket)
        if bucket is self._buckets[-1]:
            self._arrivals.begin_step()
