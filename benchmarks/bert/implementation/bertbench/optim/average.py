"""Keep an exponential moving average of the weights for evaluations.

    average = d average + (1 - d) w, from 0, divided by 1 - d^t after t steps

The division makes it a true mean of past weights from the first step on, like Adam's bias correction.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from bertbench.optim.state import Tensors


class WeightAverage:
    """The average of the weights that a rank holds: all of them, its slices, or its shards."""

    def __init__(self, tensors: Tensors, decay: float) -> None:
        self._tensors, self._decay = tensors, decay
        self._averages = [weight.clone() for weight in tensors.weights]

    @torch.no_grad()
    def update(self, steps: int) -> None:
        """Add the weights after `steps` steps, counted from 1; a skipped step adds its unchanged weights again."""
        share = (1 - self._decay) / (1 - self._decay**steps)
        torch._foreach_lerp_(self._averages, self._tensors.weights, share)

    @torch.no_grad()
    def reset(self) -> None:
        """Forget all steps; call it after a warm-up."""
        torch._foreach_copy_(self._averages, self._tensors.weights)

    def read_out(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the weights and the averages that replace them in evaluations, as this rank holds them."""
        return self._tensors.weights, self._averages

    def state(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return the averages under names derived from the parameters', for a snapshot."""
        return self._tensors.named(names, self._averages)


@contextmanager
def replaced(weights: list[Tensor], others: list[Tensor]) -> Iterator[None]:
    """Replace weights by other tensors inside the context, and restore the same bits afterwards."""
    with torch.no_grad():
        kept = [weight.clone() for weight in weights]
        torch._foreach_copy_(weights, others)
        try:
            yield
        finally:
            torch._foreach_copy_(weights, kept)
