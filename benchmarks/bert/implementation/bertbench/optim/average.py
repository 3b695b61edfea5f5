"""Hold the weights that an evaluation sees: as a step publishes them, or an exponential moving average.

    average = d average + (1 - d) w, from 0, divided by 1 - d^t after t steps

The division makes it a true mean of past weights from the first step on, like Adam's bias correction.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from bertbench.gradients.buckets import Weights
from bertbench.model.logical_tensors import LogicalTensors


class EvaluationView:
    """Evaluations see the weights as they are; other views override what they need."""

    def __init__(self, weights: Weights, tensors: LogicalTensors | None = None) -> None:
        """Take the tensors that a view replaces during an evaluation, if it does."""
        self._weights, self._held = weights, tensors.weights if tensors else []

    def after_step(self, steps: int) -> None:
        """Follow the weights after `steps` steps, counted from 1. Collective."""

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Let the model hold the weights to evaluate inside the context. Collective."""
        self._weights.ready()
        if (seen := self._seen()) is None:
            yield
            return
        with torch.no_grad():
            kept = [weight.clone() for weight in self._held]
            torch._foreach_copy_(self._held, seen)
            self._weights.publish()
            yield
            self._weights.ready()
            torch._foreach_copy_(self._held, kept)
        self._weights.publish()

    def _seen(self) -> list[Tensor] | None:
        """Return what replaces the tensors during an evaluation, None to leave them. Collective."""
        return None

    def reported_loss(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Return the loss of a step as metrics sum it over the ranks, given the norm of its gradient."""
        del norm
        return loss

    def state(self, names: Mapping[Tensor, str], own: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what a snapshot holds of `own`, the rest of a rank's state, and of the view."""
        del names
        return own

    def resume(self, steps: int) -> None:
        """Continue as after `steps` steps, once the state is restored."""

    def reset(self) -> None:
        """Forget all steps; call it after a warm-up."""


class AverageView(EvaluationView):
    """The average of the weights that a rank holds: all of them, its slices, or its shards."""

    def __init__(self, weights: Weights, tensors: LogicalTensors, decay: float) -> None:
        super().__init__(weights, tensors)
        self._tensors, self._decay = tensors, decay
        self._averages = [weight.clone() for weight in self._held]

    @torch.no_grad()
    def after_step(self, steps: int) -> None:
        """Add the weights; a skipped step adds its unchanged weights again."""
        share = (1 - self._decay) / (1 - self._decay**steps)
        torch._foreach_lerp_(self._averages, self._held, share)

    def _seen(self) -> list[Tensor]:
        return self._averages

    def state(self, names: Mapping[Tensor, str], own: dict[str, Tensor]) -> dict[str, Tensor]:
        """See `EvaluationView`."""
        averages = self._tensors.by_name(names, self._averages)
        return own | {f"average.{name}": tensor for name, tensor in averages.items()}

    @torch.no_grad()
    def reset(self) -> None:
        """See `EvaluationView`."""
        torch._foreach_copy_(self._averages, self._held)
