"""Run Adam and LAMB in multi-tensor passes: a handful of calls a step, or a few fused passes a tensor.

LAMB is Adam with decoupled weight decay whose update is rescaled per tensor, so one class does both.
Sources: Kingma and Ba 2015; Loshchilov and Hutter 2019 (AdamW); You et al. 2020 (LAMB); NVIDIA apex FusedLAMB for
the details that MLPerf's reference fixes (bias correction, eps outside the root, exclusions, no clamp).
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

import torch
from torch import nn

from bertbench.config.optimizer import OptimizerSettings
from bertbench.optim.foreach import foreach_step
from bertbench.optim.state import Hold, LogicalTensors, Scalar, State, Step, StepScalars, matrices_and_vectors


class MultiTensorAdam:
    """Adam with decoupled weight decay, or LAMB, by `options.name`; Adam for what Muon leaves.

    With m and v the bias-corrected moments: update = m / (sqrt(v) + eps) + weight_decay * w, then
    w -= lr * ratio * update. In LAMB ratio = |w| / |update| per tensor, 1 if either norm is 0; in Adam it is 1.
    Biases and LayerNorm parameters get neither weight decay nor a trust ratio. A fused query-key-value matrix
    counts as three tensors: `fused` says how many logical tensors a parameter holds along its first dimension.

    `matrix_step` updates the matrices, and in Adam the vectors too, unless there is a `vector_step`. `hold` turns
    parameters and `fused` into the tensors that this rank holds: all of them, or slices, whose norms `whole_norms`
    combines with other ranks' for LAMB: [2, tensors] in and out. Weights must not move.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        options: OptimizerSettings,
        fused: Mapping[torch.Tensor, int] | None = None,
        matrix_step: Step = foreach_step,
        vector_step: Step | None = None,
        hold: Hold = LogicalTensors,
        whole_norms: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self._options = options, options.model_copy(update={"name": "adam", "weight_decay": 0.0})
        """Those of the matrices, and of the vectors."""
        self.steps: Scalar = 0
        """Steps taken: a float64 tensor on the device as soon as a step may have been skipped."""
        self.matrix_step = matrix_step
        """May be replaced between steps: a benchmark compares steps on one set of moments."""
        self._vector_step, self._whole_norms = vector_step, whole_norms
        self._tensors = [hold(group, fused or {}) for group in matrices_and_vectors(parameters)]
        self._moments = [
            [[torch.zeros_like(weight) for weight in tensors.weights] for _ in range(2)] for tensors in self._tensors
        ]
        """First and second moments of the matrices, and of the vectors."""

    @torch.no_grad()
    def step(
        self, learning_rate: Scalar, coefficient: torch.Tensor | None = None, taken: torch.Tensor | None = None
    ) -> None:
        """Update every parameter; all must have gradients. See `state.Optimizer`."""
        self.steps += 1 if taken is None else taken.double()  # a tensor in place: a CUDA graph keeps its address
        options, of_vectors = self._options
        scalars = StepScalars(
            learning_rate if taken is None else learning_rate * taken,
            self._correction(options.beta1),
            self._correction(options.beta2),
            coefficient,
            taken,
            self.steps,
        )
        matrices, vectors = (
            State(tensors.weights, tensors.gradients(), *moments)
            for tensors, moments in zip(self._tensors, self._moments, strict=True)
        )
        joined = {} if self._whole_norms is None else {"whole_norms": self._whole_norms}
        if matrices.weights:
            self.matrix_step(matrices, options, scalars, **joined)
        elif self._whole_norms is not None:  # this rank's slices hold no matrix, others' wait for its part
            self._whole_norms(torch.zeros(2, 0))
        if vectors.weights:
            step = self._vector_step or (foreach_step if options.trust_ratio else self.matrix_step)
            step(vectors, of_vectors, scalars)

    def _correction(self, beta: float) -> Scalar:
        # at least 1: before the first step taken, moments are 0, and the correction must not be 0
        steps = self.steps.clamp(min=1) if isinstance(self.steps, torch.Tensor) else self.steps
        return 1 - beta**steps

    @torch.no_grad()
    def reset(self) -> None:
        """Forget all steps, as if the optimizer were new; call it after a warm-up."""
        self.resume(0)
        for moments in self._moments:
            for moment in chain.from_iterable(moments):
                moment.zero_()

    def moments(self, names: Mapping[torch.Tensor, str]) -> dict[str, torch.Tensor]:
        """See `state.Optimizer`."""
        return {
            f"{name}.{kind}": moment
            for tensors, both in zip(self._tensors, self._moments, strict=True)
            for kind, moments in zip(("first", "second"), both, strict=True)
            for name, moment in tensors.named(names, moments).items()
        }

    def resume(self, steps: Scalar) -> None:
        """See `state.Optimizer`."""
        if isinstance(self.steps, torch.Tensor):
            self.steps.fill_(steps)
        else:  # step() changes it in place, so take a copy
            self.steps = steps.clone() if isinstance(steps, torch.Tensor) else steps
