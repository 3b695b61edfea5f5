"""Delay gradients: step t applies the sum of step t - s, whose communication had s whole steps to finish.

Every bucket has a ring of s + 1 buffers: the sum of step t starts in one buffer while the sum of step t - s is read
from the next. The delay is fixed, so the result depends on the seed and not on the speed of the link. schedule.py
corrects the learning rate for the delay.
"""

import torch
from torch import Tensor

from bertbench.common.phase_clock import ALL_REDUCE, in_phase
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Wait
from bertbench.gradients.gradient_sum import ElementSum, GradientSum


class DelayedSum(GradientSum):
    """Starts the sum of each bucket, and fills the bucket with the sum of `delay_steps` steps ago (first, zeros)."""

    def __init__(self, element_sum: ElementSum, delay_steps: int) -> None:
        """Delay the sums that `element_sum` computes."""
        self._sum = element_sum
        self._ring_size = delay_steps + 1
        self._step = 0
        self._rings: dict[int, list[Tensor]] = {}
        """Buffers by bucket: step t uses index t modulo their number."""
        self._waits: dict[tuple[int, int], Wait] = {}
        """The sums in progress, by bucket and index."""

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Start the bucket's sum in the ring, and copy the oldest sum into the bucket; see `GradientSum`."""
        number = bucket.number
        newest = self._step % self._ring_size
        oldest = (newest + 1) % self._ring_size
        if number not in self._rings:
            self._rings[number] = [torch.zeros_like(bucket.gradients) for _ in range(self._ring_size)]
        buffer = self._rings[number][newest].copy_(bucket.gradients)
        self._waits[number, newest] = self._sum.start(number * self._ring_size + newest, buffer, factor)
        bucket.gradients.copy_(self._arrived(number, oldest))

    def finish(self) -> None:
        """End the step; later steps finish its sums."""
        self._step += 1

    def reset(self) -> None:
        """Wait for the sums in progress and discard them."""
        for number in self._rings:
            for index in range(self._ring_size):
                self._arrived(number, index).zero_()
        self._step = 0

    def state(self) -> dict[str, Tensor]:
        """Return the sums that haven't been applied yet, by bucket and age in steps; the same on every rank."""
        return {
            f"delayed.{number}.{age}": self._arrived(number, (self._step - age) % self._ring_size)
            for number in self._rings
            for age in range(1, self._ring_size)
        }

    def _arrived(self, number: int, index: int) -> Tensor:
        if wait := self._waits.pop((number, index), None):
            with in_phase(ALL_REDUCE):
                wait()
        return self._rings[number][index]
