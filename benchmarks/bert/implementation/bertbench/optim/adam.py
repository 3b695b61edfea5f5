"""Run Adam and LAMB in multi-tensor passes: a handful of calls a step, or a few fused passes a tensor.

LAMB is Adam with decoupled weight decay whose update is rescaled per tensor, so one class does both.
Sources: Kingma and Ba 2015; Loshchilov and Hutter 2019 (AdamW); You et al. 2020 (LAMB); NVIDIA apex FusedLAMB for
the details that MLPerf's reference fixes (bias correction, eps outside the root, exclusions, no clamp).
"""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import nn

from bertbench.config.optimizer import OptimizerSettings
from bertbench.optim.foreach import foreach_step
from bertbench.optim.state import (
    LogicalTensors,
    Scalar,
    State,
    Step,
    StepScalars,
    matrices_and_vectors,
)


class MultiTensorAdam:
    """Adam with decoupled weight decay, or LAMB, by `options.name`; Adam for what Muon leaves.

    With m and v the bias-corrected moments: update = m / (sqrt(v) + eps) + weight_decay * w, then
    w -= lr * ratio * update. In LAMB ratio = |w| / |update| per tensor, 1 if either norm is 0; in Adam it is 1.
    Biases and LayerNorm parameters get neither weight decay nor a trust ratio. A fused query-key-value matrix
    counts as three tensors: `fused` says how many logical tensors a parameter holds along its first dimension.

    `matrix_step` updates the matrices, and in Adam the vectors too, unless there is a `vector_step`. `hold` turns
    parameters and `fused` into the tensors that this rank holds: all of them, or slices. Weights must not move.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        options: OptimizerSettings,
        fused: Mapping[torch.Tensor, int] | None = None,
        matrix_step: Step = foreach_step,
        vector_step: Step | None = None,
        hold: Callable[[list[nn.Parameter], Mapping[torch.Tensor, int]], LogicalTensors] = LogicalTensors,
    ) -> None:
        self.options = options
        self._joins_norms = (
            options.trust_ratio and hold is not LogicalTensors
        )  # also with no matrix in this rank's slices
        self.steps: Scalar = 0
        """Steps taken: a float64 tensor on the device as soon as a step may have been skipped."""
        self.matrix_step = matrix_step
        """May be replaced between steps: a benchmark compares steps on one set of moments."""
        self._vector_step = vector_step
        matrices, vectors = matrices_and_vectors(parameters)
        self._matrices, self._vectors = (_Group(hold(group, fused or {})) for group in (matrices, vectors))

    @torch.no_grad()
    def step(
        self, learning_rate: Scalar, coefficient: torch.Tensor | None = None, taken: torch.Tensor | None = None
    ) -> None:
        """Update every parameter; all must have gradients. See `state.Optimizer`."""
        if isinstance(self.steps, torch.Tensor):  # in place: a CUDA graph keeps its address
            self.steps.add_(1 if taken is None else taken)
        else:
            self.steps = self.steps + (1 if taken is None else taken.double())
        scalars = StepScalars(
            learning_rate if taken is None else learning_rate * taken,
            self._correction(self.options.beta1),
            self._correction(self.options.beta2),
            coefficient,
            taken,
            self.steps,
        )
        if (matrices := self._matrices.state()).weights or self._joins_norms:
            self.matrix_step(matrices, self.options, self.options.weight_decay, self.options.trust_ratio, scalars)
        if (vectors := self._vectors.state()).weights:
            step = self._vector_step or (foreach_step if self.options.trust_ratio else self.matrix_step)
            step(vectors, self.options, 0.0, False, scalars)

    def _correction(self, beta: float) -> Scalar:
        # at least 1: before the first step taken, moments are 0, and the correction must not be 0
        steps = self.steps.clamp(min=1) if isinstance(self.steps, torch.Tensor) else self.steps
        return 1 - beta**steps

    @torch.no_grad()
    def reset(self) -> None:
        """Forget all steps, as if the optimizer were new; call it after a warm-up."""
        self.steps = self.steps.zero_() if isinstance(self.steps, torch.Tensor) else 0
        for group in (self._matrices, self._vectors):
            for moment in (*group.firsts, *group.seconds):
                moment.zero_()

    def moments(self, names: Mapping[torch.Tensor, str]) -> dict[str, torch.Tensor]:
        """See `state.Optimizer`."""
        return self._matrices.moments(names) | self._vectors.moments(names)

    def resume(self, steps: Scalar) -> None:
        """See `state.Optimizer`."""
        if isinstance(self.steps, torch.Tensor):
            self.steps.fill_(steps)
        else:  # step() changes it in place, so take a copy
            self.steps = steps.clone() if isinstance(steps, torch.Tensor) else steps


class _Group:
    """Parameters with the same update rule, and their moments."""

    def __init__(self, tensors: LogicalTensors) -> None:
        self._tensors = tensors
        self.firsts, self.seconds = ([torch.zeros_like(weight) for weight in tensors.weights] for _ in range(2))

    def moments(self, names: Mapping[torch.Tensor, str]) -> dict[str, torch.Tensor]:
        return {
            f"{name}.{kind}": moment
            for kind, moments in (("first", self.firsts), ("second", self.seconds))
            for name, moment in self._tensors.named(names, moments).items()
        }

    def state(self) -> State:
        return State(self._tensors.weights, self._tensors.gradients(), self.firsts, self.seconds)
