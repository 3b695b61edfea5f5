"""Reduce gradients during the backward pass: as soon as a bucket is full, clip it and start its sum over the ranks.

    backward   a bucket is full -> copy its gradients into it -> clip (clip.py) -> begin its sum (gradient_sum.py)
    finish     wait for the sums; compute the norm of the reduced gradient, and how the optimizer must still clip

The path is the same for every device, and whether every rank gets the whole gradient or only its slice (exchange.py).
Nothing is read back from the device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import WAIT
from bertbench.common.scalars import Scalar
from bertbench.config.optimizer import GRADIENT_BYTES
from bertbench.gradients.buckets import Bucket, Buckets
from bertbench.gradients.clip import GradientClip
from bertbench.gradients.gradient_sum import GradientSum, scale_in_place


class Reduced(NamedTuple):
    """The result of a step's reduction, on the device."""

    norm: Tensor
    """The norm of the reduced gradient, without loss scale."""
    factor: Tensor | None
    """The factor by which the optimizer must still clip; None means 1."""
    clipped: Tensor
    """The share of this rank's clipping decisions that reduced a gradient."""


class Reducer:
    """Reduces the gradients of one rank's model, or of its part of the model."""

    def __init__(self, parameters: Sequence[nn.Parameter], elements: Iterable[int]) -> None:
        self._parameters = parameters
        self.elements = tuple(elements)
        """The number of elements in each bucket, in the order of reduction."""

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        """Return a context for a backward pass that only adds to the gradients, unless it is the step's last one."""
        del last
        return nullcontext()

    def finish(self) -> Reduced:
        """End a step's reduction, after its last backward pass. Collective."""
        raise NotImplementedError

    def drop(self) -> None:
        """Drop the gradients: new gradients are then copied into buckets, instead of being added to zeroed old ones."""
        for parameter in self._parameters:
            parameter.grad = None

    def bytes_per_step(self) -> int:
        """Return the bytes of gradients that this rank contributes to a step's sums."""
        return GRADIENT_BYTES * sum(self.elements)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors on which later reductions depend; no copies."""
        return {}

    def reset(self) -> None:
        """Forget the state of earlier steps; call it after a warm-up and before the process group ends."""


class BucketCountdown:
    """Counts the gradients of each bucket, and calls `ready` with the number of each full bucket, in order.

    The order is that of the buckets, even if gradients are computed in another order, because collectives must match on
    all ranks.
    """

    def __init__(self, counts: Sequence[int], ready: Callable[[int], None]) -> None:
        """Expect, in each step, `counts[b]` gradients of bucket b."""
        self._counts = counts
        self._ready = ready
        self._paused = False
        self.begin_step()

    def begin_step(self) -> None:
        """Expect all gradients again."""
        self._missing = list(self._counts)
        self._next = 0

    def end_step(self) -> None:
        """Check that every bucket has been filled exactly once since the step began."""
        assert not any(self._missing), "every trained parameter takes part in every step"
        self.begin_step()

    def watch(self, number: int, parameters: Iterable[nn.Parameter]) -> None:
        """Count each gradient of these parameters for bucket `number`, as long as this object lives."""
        # Python can't collect a cycle that passes through a parameter's hook: no tensor of a trainer would be freed
        countdown = ref(self)

        def count(_: Tensor) -> None:
            living = countdown()
            if living is not None:
                living.arrive(number)

        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(count)

    def arrive(self, number: int) -> None:
        """Count one gradient of a bucket."""
        if self._paused:
            return
        self._missing[number] -= 1
        while self._next < len(self._missing) and self._missing[self._next] == 0:
            full = self._next
            self._next += 1
            self._ready(full)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing within the context."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False


class GradientReducer(Reducer):
    """Clips and sums the gradients of one model's buckets; `norm` computes the norm of the summed gradient."""

    def __init__(
        self,
        buckets: Buckets,
        clip: GradientClip,
        gradient_sum: GradientSum,
        norm: Callable[[], Tensor],
        scale: Scalar = 1.0,
        in_place: bool = False,
    ) -> None:
        """Watch the parameters of the buckets; `scale` is the factor on the loss, a tensor if it changes.

        With `in_place`, `drop` zeroes gradients in place, for recorded backward passes that add to them.
        """
        super().__init__(buckets.parameters, (bucket.elements for bucket in buckets.all))
        self._buckets = buckets
        self._clip = clip
        self._sum = gradient_sum
        self._norm = norm
        self._scale = scale
        self._in_place = in_place
        self._countdown = BucketCountdown([len(bucket.parameters) for bucket in buckets.all], self._full)
        for bucket in buckets.all:
            self._countdown.watch(bucket.number, bucket.parameters)

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        """Return a context in which full buckets don't start a sum, unless `last`; see `Reducer`."""
        return nullcontext() if last else self._countdown.paused()

    def finish(self) -> Reduced:
        """Wait for the sums of the buckets; start them first if clipping needs all buckets; see `Reducer`."""
        self._countdown.end_step()
        if self._clip.waits_for_all:
            factor = self._clip.contribution([bucket.gradients for bucket in self._buckets.all])
            for bucket in self._buckets.all:
                self._begin(bucket, factor)
        with in_phase(WAIT):
            self._sum.finish()
        norm = self._norm() / self._scale
        factor_left, clipped = self._clip.reduced(norm)
        return Reduced(norm, factor_left, clipped)

    def drop(self) -> None:
        """Zero the gradients if they must stay in place, otherwise drop them; see `Reducer`."""
        if self._in_place:
            torch._foreach_zero_([bucket.gradients for bucket in self._buckets.all])
        else:
            super().drop()

    def bytes_per_step(self) -> int:
        """Return the bytes that the sum sends; see `Reducer`."""
        shapes = [parameter.shape for parameter in self._parameters]
        return self._sum.bytes_per_step(shapes, self.elements)

    def state(self) -> dict[str, Tensor]:
        """Return the state of the sum; see `Reducer`."""
        return self._sum.state()

    def reset(self) -> None:
        """Reset the clipping and the sum; see `Reducer`."""
        self._clip.reset()
        self._sum.reset()

    def _full(self, number: int) -> None:
        bucket = self._buckets.all[number]
        bucket.take_in()
        if not self._clip.waits_for_all:
            self._begin(bucket, self._clip.contribution([bucket.gradients]))

    def _begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Start the sum of a bucket, to which this rank contributes `factor` times its content."""
        self._sum.begin(bucket, factor)


class PartwiseReducer(GradientReducer):
    """Clips the gradient of each part of an accumulated batch separately, and adds up the clipped parts.

    The sum over the ranks starts during the last part's backward pass. Clipped parts need 4 more bytes for each
    parameter.
    """

    def __init__(
        self,
        buckets: Buckets,
        clip: GradientClip,
        gradient_sum: GradientSum,
        norm: Callable[[], Tensor],
        scale: Scalar = 1.0,
    ) -> None:
        super().__init__(buckets, clip, gradient_sum, norm, scale)
        self._clipped_parts = [torch.zeros_like(bucket.gradients) for bucket in buckets.all]

    @contextmanager
    def accumulating(self, last: bool) -> Iterator[None]:
        """Return a context that, unless `last`, clips the gradient of the backward pass at its end; see `Reducer`."""
        with super().accumulating(last):
            yield
        if not last:
            self._keep_clipped_part()

    def drop(self) -> None:
        """Drop the gradients and the clipped parts; see `Reducer`."""
        super().drop()
        torch._foreach_zero_(self._clipped_parts)

    @torch.no_grad()
    def _keep_clipped_part(self) -> None:
        for bucket in self._buckets.all:
            bucket.take_in()
        factor_of_all = None
        if self._clip.waits_for_all:
            factor_of_all = self._clip.contribution([bucket.gradients for bucket in self._buckets.all])
        for bucket in self._buckets.all:
            factor = factor_of_all
            if not self._clip.waits_for_all:
                factor = self._clip.contribution([bucket.gradients])
            self._clipped_parts[bucket.number].add_(scale_in_place(bucket.gradients, factor))
        super().drop()

    @torch.no_grad()
    def _begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        scale_in_place(bucket.gradients, factor).add_(self._clipped_parts[bucket.number])
        self._sum.begin(bucket, None)
