"""Follow each update, and provide the weights that an evaluation sees: the last, or an exponential moving average.

    average = d average + (1 - d) w, starting from 0; after t steps it is divided by 1 - d^t

Like Adam's bias correction, the division makes the average a true mean of past weights from the first step on.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from bertbench.gradients.buckets import ModelWeights
from bertbench.model.logical_tensors import LogicalTensors


class EvaluationView:
    """Does nothing after an update; evaluations see the current weights. Other views override what they change."""

    def __init__(self, weights: ModelWeights, tensors: LogicalTensors | None = None) -> None:
        """Take the weights, and the tensors that the view replaces during an evaluation, if it replaces any."""
        self._weights = weights
        self._trained = tensors.weights if tensors else []
        """The weights that training updates on this rank."""

    def after_update(self, steps: int) -> None:
        """Do what follows an update; `steps` is the number of steps so far."""

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Let the model hold the weights to be evaluated within the context. Collective."""
        self._weights.ready()
        evaluated = self._evaluated()
        if evaluated is None:
            yield
            return
        with torch.no_grad():
            trained = [weight.clone() for weight in self._trained]
            torch._foreach_copy_(self._trained, evaluated)
            self._weights.publish()
            self._weights.ready()
            self._weights.refresh()
            yield
            self._weights.ready()
            torch._foreach_copy_(self._trained, trained)
        self._weights.publish()
        self._weights.refresh()

    def _evaluated(self) -> list[Tensor] | None:
        """Return the tensors that replace the trained weights during an evaluation; None for no change. Collective."""
        return None

    def state(self, names: Mapping[Tensor, str], rank_state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the snapshot's tensors: those of the view, and `rank_state`, the rest of a rank's state."""
        del names
        return rank_state

    def resume(self, steps: int) -> None:
        """Continue from the restored state, after `steps` steps."""

    def reset(self) -> None:
        """Forget all steps; call it after a warm-up."""


class AverageView(EvaluationView):
    """The average of the weights that a rank holds: all of them, its slices, or its shards."""

    def __init__(self, weights: ModelWeights, tensors: LogicalTensors, decay: float) -> None:
        super().__init__(weights, tensors)
        self._tensors = tensors
        self._decay = decay
        self._averages = [weight.clone() for weight in self._trained]

    @torch.no_grad()
    def after_update(self, steps: int) -> None:
        """Add the weights to the average; a skipped step adds the unchanged weights again."""
        share = (1 - self._decay) / (1 - self._decay**steps)
        torch._foreach_lerp_(self._averages, self._trained, share)

    def _evaluated(self) -> list[Tensor]:
        return self._averages

    def state(self, names: Mapping[Tensor, str], rank_state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the averages as well, as `average.<name>`; see `EvaluationView`."""
        averages = self._tensors.by_name(names, self._averages)
        return rank_state | {f"average.{name}": tensor for name, tensor in averages.items()}

    @torch.no_grad()
    def reset(self) -> None:
        """Restart from the weights; see `EvaluationView`."""
        torch._foreach_copy_(self._averages, self._trained)
