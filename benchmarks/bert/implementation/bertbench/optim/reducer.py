"""Reduce gradients behind the backward pass: as soon as a bucket is full, clip it and start its sum over the ranks.

    backward   a bucket is full -> take its gradients in -> clip (clip.py) -> begin its sum (gradient_sum.py)
    finish     wait for the sums; the norm of the reduced gradient, and what clipping is left to the optimizer

One path for every device and every owner of the result: the whole gradient on every rank, or a slice on each
(exchange.py). Nothing is read back from the device.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import torch

from bertbench.common.ranges import ALL_REDUCE, named
from bertbench.optim.buckets import Buckets
from bertbench.optim.clip import Clip
from bertbench.optim.countdown import BucketCountdown
from bertbench.optim.gradient_sum import GradientSum
from bertbench.optim.state import Scalar


class Reduced(NamedTuple):
    """The result of a step's reduction, on the device."""

    norm: torch.Tensor
    """Norm of the reduced gradient, without loss scale."""
    factor: torch.Tensor | None
    """Factor by which the optimizer still clips; None for 1."""
    clipped: torch.Tensor
    """Share of this rank's clipping decisions that reduced a gradient."""


class Reducer(Protocol):
    """Reduces the gradients of one rank's model, or of its part of one."""

    def finish(self) -> Reduced:
        """End a step's reduction, after its last backward pass. Collective."""

    def drop(self) -> None:
        """Drop the gradients after a step."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors in memory on which later reductions depend."""

    def reset(self) -> None:
        """Forget the state of earlier steps; call it after a warm-up and before the process group ends."""


class GradientReducer:
    """Clips and sums the gradients of one model's buckets; `norm` computes the norm of the summed gradient."""

    def __init__(
        self,
        buckets: Buckets,
        clip: Clip,
        gradient_sum: GradientSum,
        norm: Callable[[], torch.Tensor],
        scale: Scalar = 1.0,
    ) -> None:
        """Watch the buckets' parameters; `scale` is the factor on the loss, a tensor where it changes."""
        self._buckets, self._clip, self._sum, self._norm, self._scale = buckets, clip, gradient_sum, norm, scale
        self._countdown = BucketCountdown([len(bucket.parameters) for bucket in buckets.all], self._full)
        for bucket in buckets.all:
            self._countdown.watch(bucket.number, bucket.parameters)

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        """Return a context for a backward pass that only adds to the gradients, unless it is a step's last."""
        return nullcontext() if last else self._countdown.paused()

    def finish(self) -> Reduced:
        """See `Reducer`."""
        self._countdown.end_step()
        if self._clip.waits_for_all:
            factor = self._clip.contribution([bucket.gradients for bucket in self._buckets.all])
            for bucket in self._buckets.all:
                self._sum.begin(bucket, factor)
        with named(ALL_REDUCE):
            self._sum.finish()
        norm = self._norm() / self._scale
        return Reduced(norm, *self._clip.reduced(norm))

    def drop(self) -> None:
        """Drop the gradients: a new one is copied into its bucket, an old one would be zeroed, read and added to."""
        for parameter in self._buckets.parameters:
            parameter.grad = None

    def zero(self) -> None:
        """Make all gradients zero where they are, for recorded backward passes that add to them."""
        torch._foreach_zero_([bucket.gradients for bucket in self._buckets.all])

    @property
    def elements(self) -> tuple[int, ...]:
        """Return the elements of each bucket, in the order of reduction."""
        return tuple(bucket.elements for bucket in self._buckets.all)

    def state(self) -> dict[str, torch.Tensor]:
        """See `Reducer`."""
        return self._sum.state()

    def reset(self) -> None:
        """See `Reducer`."""
        self._sum.reset()

    def _full(self, number: int) -> None:
        bucket = self._buckets.all[number]
        bucket.take_in()
        if not self._clip.waits_for_all:
            self._sum.begin(bucket, self._clip.contribution([bucket.gradients]))
