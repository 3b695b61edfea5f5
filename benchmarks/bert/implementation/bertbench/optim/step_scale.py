"""Prepare the update by a reduced gradient: learning rate, factor, and for fp16 a loss scale that may skip the step.

    update = scale.prepare(step, reduced) -> optimizer.step(rate, factor, taken) -> scale.advance(update)

Nothing is read back from the device: with a loss scale the host never learns whether a step was skipped.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bertbench.common.scalars import Scalar
from bertbench.config.optimizer import LearningRate
from bertbench.gradients.reducer import Reduced

_GROWTH_INTERVAL = 2_000  # steps without overflow before the scale doubles (Micikevicius et al. 2018)


class Update(NamedTuple):
    """How the optimizer applies a reduced gradient."""

    learning_rate: Scalar
    factor: Tensor | None
    """Factor on the gradient; None means 1."""
    finite: Tensor | None = None
    """Whether the gradient is finite; a gradient that isn't is skipped. None if this isn't checked."""
    loss_scale: Tensor | None = None
    """The factor by which the loss was multiplied; None without loss scaling."""

    @property
    def taken(self) -> Tensor | None:
        """Return 1 if the optimizer takes this step and 0 if it skips it; None if it never skips steps."""
        return None if self.finite is None else self.finite.float()


class FixedScale:
    """Applies every gradient unchanged, at the schedule's rate."""

    factor: Scalar = 1.0
    """The factor on the loss."""

    def __init__(self, schedule: LearningRate, steps: int) -> None:
        """Take the rates of `steps` steps; the last rate is also that of any later step."""
        self._rates = [schedule.rate(step) for step in range(steps)]

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass of the loss times the factor."""
        loss.backward()

    def prepare(self, number: int, reduced: Reduced) -> Update:
        """Return how the gradient of step `number`, counted from 0, updates the weights."""
        last = len(self._rates) - 1
        return Update(self._rates[min(number, last)], reduced.factor)

    def advance(self, update: Update) -> None:
        """Count the step; call it after the update."""

    def resume(self, steps: int) -> Scalar:
        """Continue from the restored state, after `steps` steps; return how many updates they made."""
        return steps

    def state(self) -> dict[str, Tensor]:
        """Return the state: the tensors themselves, not copies."""
        return {}

    def reset(self) -> None:
        """Return to the initial state; call it after a warm-up."""


class RecordedScale(FixedScale):
    """Counts the steps on the device, where a recorded step looks up its rate."""

    def __init__(
        self, schedule: LearningRate, steps: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        """Keep the rates of `steps` steps on the device."""
        super().__init__(schedule, steps)
        self._on_device = torch.tensor(self._rates, dtype=dtype, device=device)
        self._taken = torch.zeros((), dtype=torch.int64, device=device)

    def prepare(self, number: int, reduced: Reduced) -> Update:
        """Return the update for the device's own count, which replaces `number`; see `FixedScale`."""
        del number
        return Update(self._rate(), reduced.factor)

    def advance(self, update: Update) -> None:
        """Count the step on the device; see `FixedScale`."""
        del update
        self._taken.add_(1)

    def resume(self, steps: int) -> Scalar:
        """Set the device's count; see `FixedScale`."""
        self._taken.fill_(steps)
        return steps

    def reset(self) -> None:
        """Set the device's count to 0; see `FixedScale`."""
        self._taken.zero_()

    def _rate(self) -> Tensor:
        return torch.take(self._on_device, self._taken.clamp(max=len(self._on_device) - 1))


class LossScaler(RecordedScale):
    """A factor on the loss that keeps fp16 gradients in range: halved at an overflow, doubled after 2,000 good steps.

    The loss is divided by global counts. A rank's gradients are therefore smaller, by the number of ranks, than if the
    means of ranks were averaged. To use the same range of fp16, the scale starts at `initial` times `ranks`.
    """

    def __init__(self, schedule: LearningRate, steps: int, initial: float, ranks: int, device: torch.device) -> None:
        """Keep the rates of `steps` steps on the device: the host doesn't know how many were skipped."""
        super().__init__(schedule, steps, device, torch.float64)
        self._initial_factor = initial * ranks
        self.factor: Tensor = torch.full((), self._initial_factor, device=device)
        """The current factor; it changes in place, because other objects may hold the tensor."""
        self._good_steps = torch.zeros((), dtype=torch.int64, device=device)

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass of the loss times the current factor; see `FixedScale`."""
        (loss * self.factor).backward()

    def prepare(self, number: int, reduced: Reduced) -> Update:
        """Skip a gradient that isn't finite. All ranks do the same, because they see the same reduced gradient."""
        del number
        scale = self.factor.clone()
        finite = reduced.norm.isfinite()
        factor = scale.reciprocal() if reduced.factor is None else reduced.factor / scale
        return Update(self._rate(), torch.where(finite, factor, 0), finite, scale)

    def advance(self, update: Update) -> None:
        """Adjust the scale and count the step, unless it was skipped."""
        assert update.finite is not None, "with a loss scale, every update says whether its gradient is finite"
        self.adjust(update.finite)

    def adjust(self, finite: Tensor) -> None:
        """Adjust the scale, given whether the step's gradient was finite."""
        good_steps = torch.where(finite, self._good_steps + 1, 0)
        grows = good_steps == _GROWTH_INTERVAL
        self.factor.mul_(torch.where(finite, torch.where(grows, 2.0, 1.0), 0.5))
        self._good_steps.copy_(torch.where(grows, 0, good_steps))
        self._taken += finite

    def resume(self, steps: int) -> Scalar:
        """Return the restored count of steps taken, which excludes skipped steps; see `FixedScale`."""
        del steps
        return self._taken.double()

    def state(self) -> dict[str, Tensor]:
        """Return the factor and both counts; see `FixedScale`."""
        return {"scale": self.factor, "quiet": self._good_steps, "taken": self._taken}

    def reset(self) -> None:
        """Return to the initial factor and to counts of 0; see `FixedScale`."""
        super().reset()
        self.factor.fill_(self._initial_factor)
        self._good_steps.zero_()
