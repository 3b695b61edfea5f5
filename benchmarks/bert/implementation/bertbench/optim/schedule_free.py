"""Schedule-free AdamW: a running mean of the iterates replaces a decaying rate (Defazio et al. 2024).

    z   the iterate        x   the mean of the z, which evaluations read        y = (1 - beta1) z + beta1 x, trained at
    u = g / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay y,   at y
    z -= rate u            x += c (z - x)        c = largest rate^2 / sum of such squares over the steps so far

The weights hold y, and d = z - y takes the place of Adam's first moment: zero before the first step. Then
y += c d - rate (1 - beta1 (1 - c)) u        d = (1 - c) (d - rate beta1 u)        x = y + (1 - 1 / beta1) d
"""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from bertbench.optim.adam import MultiTensorAdam
from bertbench.optim.foreach import advance_seconds, denominators
from bertbench.optim.options import AdamOptions
from bertbench.optim.state import LogicalTensors, Scalar, State, StepScalars, Tensors


class ScheduleFreeAdam(MultiTensorAdam):
    """MultiTensorAdam with schedule-free steps; the learning rate must be a number, so steps can't be skipped."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        options: AdamOptions,
        fused: Mapping[Tensor, int],
        hold: Callable[[list[nn.Parameter], Mapping[Tensor, int]], Tensors] = LogicalTensors,
    ) -> None:
        super().__init__(parameters, options, False, fused, self._update, None, hold)
        self._sums = torch.zeros(2, dtype=torch.float64)  # on the host, even if weights are on a device
        self._rate, self._share = 0.0, 1.0

    @torch.no_grad()
    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """See `state.Optimizer`; a step's weight in the mean is its largest rate so far, squared."""
        assert not isinstance(learning_rate, Tensor) and taken is None, "the configuration refuses a loss scale"
        largest = max(self._sums[0].item(), learning_rate)
        total = self._sums[1].item() + largest**2
        self._sums.copy_(torch.tensor([largest, total], dtype=torch.float64))
        self._rate, self._share = learning_rate, largest**2 / total if total else 0.0
        super().step(learning_rate, coefficient)

    def _update(
        self, state: State, options: AdamOptions, decay: float, trust_ratio: bool, scalars: StepScalars
    ) -> None:
        del trust_ratio
        weights, updates, offsets, seconds = state
        rate, share, beta1 = self._rate, self._share, options.beta1
        advance_seconds(updates, seconds, options, scalars)
        torch._foreach_div_(updates, denominators(seconds, options, scalars))
        if decay:
            torch._foreach_add_(updates, weights, alpha=decay)
        torch._foreach_add_(weights, offsets, alpha=share)
        torch._foreach_add_(weights, updates, alpha=-rate * (1 - beta1 * (1 - share)))
        torch._foreach_add_(offsets, updates, alpha=-rate * beta1)
        torch._foreach_mul_(offsets, 1 - share)

    def read_out(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the weights and the means that replace them in evaluations; see `average.Averaging`."""
        pairs = list(self.weights_and_firsts())
        weights = [weight for weight, _ in pairs]
        return weights, [mean(weight, offset, self.options.beta1) for weight, offset in pairs]

    def reset(self) -> None:
        """See `state.Optimizer`."""
        super().reset()
        self._sums.zero_()

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """See `state.Resumable`."""
        return super().moments(names) | {"schedule_free.rates": self._sums}


def mean(weight: Tensor, offset: Tensor, beta1: float) -> Tensor:
    """Return x, given y (the weights) and z - y (the offset)."""
    return torch.add(weight, offset, alpha=1 - 1 / beta1)
