"""Apply a reduced gradient: learning rate, clipping factor, and for fp16 a loss scale that may skip the step.

Nothing is read back from the device: with a loss scale the host never learns whether a step was skipped.
"""

import torch
from torch import Tensor

from bertbench.config.optimizer import LearningRate
from bertbench.optim.reducer import Reduced
from bertbench.optim.state import Optimizer, Scalar

_GROWTH_INTERVAL = 2_000  # steps without overflow before the scale doubles (Micikevicius et al. 2018)


Applied = tuple[Scalar, Tensor | None]
"""The learning rate with which a gradient was applied, and the factor on the loss; None without loss scaling."""


class FixedScale:
    """Apply every gradient as it is, at the schedule's rate, but none in the first `delay` steps: theirs is to come."""

    factor: Scalar = 1.0
    """The factor on the loss."""

    def __init__(self, schedule: LearningRate, steps: int, delay: int = 0) -> None:
        """Hold the rates of `steps` steps; the last one's holds beyond them."""
        self._rates, self._delay = [schedule.rate(step) for step in range(steps)], delay

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass of a loss, times the factor."""
        loss.backward()

    def step(self, optimizer: Optimizer, number: int, reduced: Reduced) -> Applied:
        """Update the weights by the gradient of step `number`, counted from 0."""
        rate = self._rates[min(number, len(self._rates) - 1)]
        if number >= self._delay:
            optimizer.step(rate, reduced.factor)
        return rate, None

    def resume(self, steps: int) -> Scalar:
        """Continue as after `steps` steps, once the state is restored; return how many updates they made."""
        return max(steps - self._delay, 0)

    def state(self) -> dict[str, Tensor]:
        """Return its state tensors themselves."""
        return {}

    def reset(self) -> None:
        """Return to the initial state; call it after a warm-up."""


class RecordedScale(FixedScale):
    """Count the steps on the device, where a recorded step finds its rate."""

    def __init__(
        self, schedule: LearningRate, steps: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        """Keep the rates of `steps` steps on the device."""
        super().__init__(schedule, steps)
        self._on_device = torch.tensor(self._rates, dtype=dtype, device=device)
        self._taken = torch.zeros((), dtype=torch.int64, device=device)

    def step(self, optimizer: Optimizer, number: int, reduced: Reduced) -> Applied:
        """See `FixedScale`; the device's own count replaces `number`."""
        del number
        rate = self._rate()
        self._taken.add_(1)
        optimizer.step(rate, reduced.factor)
        return rate, None

    def resume(self, steps: int) -> Scalar:
        """See `FixedScale`."""
        self._taken.fill_(steps)
        return steps

    def reset(self) -> None:
        """See `FixedScale`."""
        self._taken.zero_()

    def _rate(self) -> Tensor:
        return torch.take(self._on_device, self._taken.clamp(max=len(self._on_device) - 1))


class LossScaler(RecordedScale):
    """A loss factor that keeps fp16 gradients in range: halved at an overflow, doubled after 2,000 good steps.

    The loss is divided by global counts, so a rank's gradients are smaller by the number of ranks than if ranks' means
    were averaged. So the scale starts at `initial` times `ranks`, which gives the same fp16 range.
    """

    def __init__(self, schedule: LearningRate, steps: int, initial: float, ranks: int, device: torch.device) -> None:
        """Keep the rates of `steps` steps on the device: the host doesn't know how many were skipped."""
        super().__init__(schedule, steps, device, torch.float64)
        self._first = initial * ranks
        self.factor: Tensor = torch.full((), self._first, device=device)
        """The current factor, updated in place: others may hold the tensor."""
        self._quiet = torch.zeros((), dtype=torch.int64, device=device)

    def backward(self, loss: Tensor) -> None:
        """See `FixedScale`."""
        (loss * self.factor).backward()

    def step(self, optimizer: Optimizer, number: int, reduced: Reduced) -> Applied:
        """Update the weights, or skip a gradient that isn't finite; on every rank alike, as it is the reduced one."""
        del number
        scale, taken = self.factor.clone(), reduced.norm.isfinite()
        rate = self._rate()
        coefficient = scale.reciprocal() if reduced.factor is None else reduced.factor / scale
        optimizer.step(rate, torch.where(taken, coefficient, 0), taken.float())
        self.update(taken)
        return rate, scale

    def update(self, finite: Tensor) -> None:
        """Adjust the scale after a step whose gradient was finite or not."""
        quiet = torch.where(finite, self._quiet + 1, 0)
        grows = quiet == _GROWTH_INTERVAL
        self.factor.mul_(torch.where(finite, torch.where(grows, 2.0, 1.0), 0.5))
        self._quiet.copy_(torch.where(grows, 0, quiet))
        self._taken += finite

    def resume(self, steps: int) -> Scalar:
        """See `FixedScale`."""
        del steps
        return self._taken.double()

    def state(self) -> dict[str, Tensor]:
        """See `FixedScale`."""
        return {"scale": self.factor, "quiet": self._quiet, "taken": self._taken}

    def reset(self) -> None:
        """See `FixedScale`."""
        super().reset()
        self.factor.fill_(self._first)
        self._quiet.zero_()
