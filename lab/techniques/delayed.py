"""Delay gradients: step t applies the sum of step t - s, whose communication had s whole steps to finish.

Every bucket has a ring of s + 1 buffers: the sum of step t starts in one buffer while the sum of step t - s is read
from the next. The delay is fixed, so the result depends on the seed and not on the speed of the link. The first s steps
update nothing, and the first updates have a smaller learning rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor, nn

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import WAIT
from bertbench.common.scalars import Scalar
from bertbench.config.optimizer import LearningRate
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Exchange, Wait
from bertbench.gradients.gradient_sum import ELEMENT_SUMS, ElementSum, GradientSum
from bertbench.optim.interface import Optimizer
from bertbench.training.technique import Technique
from lab.techniques.rules import RULES

# A sum of metrics waits for all gradients ahead of it on the link: once every 32 steps, that costs 3 % at most.
_REPORT_STEPS = 32


class Delayed(Technique):
    """Each step applies the sum of an earlier step, whose communication overlaps the steps in between."""

    name = "delayed"
    rules = RULES

    steps: NonNegativeInt = 1
    """Age of the gradients that a step applies, in steps. 0 is the same as every_step."""
    correction_steps: NonNegativeInt | None = None
    """Number of steps in which the learning rate, divided by 1 + `steps` at first, returns to the schedule's. Default:
    `schedule.warmup_steps`."""
    compression: Literal["none", "bf16"] = "none"
    """Format in which gradients are sent."""

    @property
    def report_steps(self) -> int:
        """Return the steps between sums of metrics; see `Technique`."""
        return _REPORT_STEPS if self.steps else 1

    def gradient_sum(self, exchange: Exchange) -> GradientSum:
        """Return the delayed sum, by torch's collectives: shared memory sums at once; see `Technique`."""
        if self.steps == 0:
            return ELEMENT_SUMS[self.compression](exchange)
        return DelayedSum(ELEMENT_SUMS[self.compression](Exchange()), self.steps)

    def learning_rate(self, schedule: LearningRate) -> LearningRate:
        """Return the corrected rates; see `Technique`."""
        correction_steps = schedule.warmup_steps if self.correction_steps is None else self.correction_steps
        return RateOfOldGradients(**asdict(schedule), delay_steps=self.steps, correction_steps=correction_steps)

    def optimizer(self, optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> Optimizer:
        """Return the system's optimizer, which waits for the first gradients; see `Technique`."""
        del parameters
        return WaitingOptimizer(optimizer, self.steps)


@dataclass(frozen=True)
class RateOfOldGradients(LearningRate):
    """The schedule's rate, divided for the age s of the gradients at first.

    The divisor is (1 + s) ** (1 - step / correction_steps) (PipeMare, Yang et al. 2021, section 3.1). SGD's largest
    stable rate falls as sin(pi / (4 s + 2)): to 0.50 at s = 1, 0.31 at s = 2.
    """

    delay_steps: int = 0
    """The age s."""
    correction_steps: int = 0

    def rate(self, step: int) -> float:
        """Return the rate of step `step`, counted from 0."""
        rate = super().rate(step)
        if step < self.correction_steps:
            rate /= (1 + self.delay_steps) ** (1 - step / self.correction_steps)
        return rate


class WaitingOptimizer:
    """An optimizer whose first steps do nothing, because no gradient has arrived yet."""

    def __init__(self, optimizer: Optimizer, waits: int) -> None:
        self._optimizer = optimizer
        self._waits = waits
        self._steps = 0

    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """Take a step, unless it is one of the first; see `Optimizer`."""
        self._steps += 1
        if self._steps > self._waits:
            self._optimizer.step(learning_rate, coefficient, taken)

    def reset(self) -> None:
        """Wait again; see `Optimizer`."""
        self._steps = 0
        self._optimizer.reset()

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return the optimizer's moments; see `Optimizer`."""
        return self._optimizer.moments(names)

    def resume(self, steps: Scalar) -> None:
        """Continue after `steps` steps, the first of which did nothing; see `Optimizer`."""
        self._steps = int(steps)
        self._optimizer.resume(max(self._steps - self._waits, 0))


class DelayedSum(GradientSum):
    """Starts the sum of each bucket, and fills the bucket with the sum of `delay_steps` steps ago (first, zeros)."""

    def __init__(self, element_sum: ElementSum, delay_steps: int) -> None:
        """Delay the sums that `element_sum` computes."""
        self.keeps_a_single_one = element_sum.keeps_a_single_one
        self._sum = element_sum
        self._ring_size = delay_steps + 1
        self._step = 0
        self._rings: dict[int, list[Tensor]] = {}
        """Buffers by bucket: step t uses index t modulo their number."""
        self._waits: dict[tuple[int, int], Wait] = {}
        """The sums in progress, by bucket and index."""

    def bytes_per_step(self, shapes: Sequence[Sequence[int]], bucket_elements: Sequence[int]) -> int:
        """Return the bytes of a step's sums, which later steps apply; see `GradientSum`."""
        return self._sum.bytes_per_step(shapes, bucket_elements)

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
            with in_phase(WAIT):
                wait()
        return self._rings[number][index]
