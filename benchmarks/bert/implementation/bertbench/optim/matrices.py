"""Update matrices as a whole: select them, define a rule's interface, and step all of them.

Shapes: B matrices of one shape, M rows, N columns.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from bertbench.model.bert import Bert
from bertbench.optim.foreach import subtract
from bertbench.optim.state import LogicalTensors, Resumable, Scalar, logical_shapes, logical_tensors

Kept = dict[str, list[Tensor]]
"""State by kind, a tensor for each matrix."""


class MatrixRule(Protocol):
    """Turns gradients into updates and keeps its own state between steps."""

    text: str
    """A line that describes its arithmetic."""

    def updates(self, gradients: Sequence[Tensor], taken: Tensor | None, steps: Scalar) -> list[Tensor]:
        """Return each matrix's update at learning rate 1, given finite gradients [M, N].

        `taken` is 1, or 0 in a skipped step, which leaves all state; `steps` counts steps taken, including this one.
        """

    def kept(self) -> Kept:
        """Return the state tensors themselves, all zeros before the first step."""


def encoder_matrices(model: Bert) -> list[nn.Parameter]:
    """Return the matrices of the encoder's layers; Adam takes embeddings, heads and vectors (Jordan et al. 2024)."""
    matrix = 2
    return [parameter for parameter in model.layers.parameters() if parameter.dim() == matrix]


class ByShape:
    """Matrices batched by shape."""

    def __init__(self, shapes: Sequence[torch.Size]) -> None:
        self._places: dict[torch.Size, list[int]] = {}
        for place, shape in enumerate(shapes):
            self._places.setdefault(shape, []).append(place)

    def zeros(self, device: torch.device) -> list[Tensor]:
        """Return a zero [B, M, N] for each batch."""
        return [torch.zeros(len(places), *shape, device=device) for shape, places in self._places.items()]

    def stacked(self, matrices: Sequence[Tensor]) -> list[Tensor]:
        """Return copies of the matrices, stacked into one [B, M, N] for each batch."""
        return [torch.stack([matrices[place] for place in places]) for places in self._places.values()]

    def apart(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """Return the matrices of batches in their original order, on the same memory."""
        placed = {
            place: matrix
            for places, batch in zip(self._places.values(), batches, strict=True)
            for place, matrix in zip(places, batch.unbind(), strict=True)
        }
        return [placed[place] for place in range(len(placed))]


class WholeMatrices:
    """Logical matrices that are whole on every rank."""

    def __init__(self, parameters: Sequence[nn.Parameter], fused: Mapping[Tensor, int]) -> None:
        self._tensors = LogicalTensors(parameters, fused)
        self._parameters, self._fused = parameters, fused
        self.weights = self._tensors.weights
        """Flat views of the parameters."""
        self.shapes = logical_shapes(parameters, fused)
        """Shapes of the matrices whose updates this rank computes."""

    def gradients(self) -> list[Tensor]:
        """Return the flat gradients of `weights`."""
        return self._tensors.gradients()

    def collect(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return gradients as matrices of `shapes`."""
        return [gradient.view(shape) for gradient, shape in zip(gradients, self.shapes, strict=True)]

    def spread(self, updates: Sequence[Tensor]) -> list[Tensor]:
        """Return the flat updates of `weights`."""
        return [update.reshape(-1) for update in updates]

    def named(self, names: Mapping[Tensor, str], matrices: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return tensors that match `shapes`, under names derived from the parameters'."""
        return dict(zip(logical_tensors(names, self._parameters, self._fused), matrices, strict=True))


class Matrices(Protocol):
    """Logical matrices, whole on this rank or dealt to the ranks; `WholeMatrices` documents the methods."""

    weights: list[Tensor]
    shapes: list[torch.Size]

    def gradients(self) -> list[Tensor]: ...  # noqa: D102
    def collect(self, gradients: Sequence[Tensor]) -> list[Tensor]: ...  # noqa: D102
    def spread(self, updates: Sequence[Tensor]) -> list[Tensor]: ...  # noqa: D102
    def named(self, names: Mapping[Tensor, str], matrices: Sequence[Tensor]) -> dict[str, Tensor]: ...  # noqa: D102


class MatrixOptimizer:
    """Subtract rate * (update + weight_decay * w) from every matrix; the rule computes the update."""

    def __init__(self, matrices: Matrices, rule: MatrixRule, weight_decay: float) -> None:
        self._matrices, self._rule, self._decay = matrices, rule, weight_decay
        self._steps: Scalar = 0

    @torch.no_grad()
    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """See `state.Optimizer`."""
        self._steps = self._steps + (1 if taken is None else taken.double())
        weights, gradients = self._matrices.weights, self._matrices.gradients()
        if taken is not None:
            learning_rate = (learning_rate * taken).float()
            for gradient in gradients:
                gradient.nan_to_num_(0.0, 0.0, 0.0)
        if coefficient is not None and gradients:
            torch._foreach_mul_(gradients, coefficient)
        updates = self._matrices.spread(self._rule.updates(self._matrices.collect(gradients), taken, self._steps))
        if not weights:  # a rank whose slices hold none of these matrices
            return
        if self._decay:
            torch._foreach_mul_(weights, 1 - learning_rate * self._decay)
        subtract(weights, updates, learning_rate)

    @torch.no_grad()
    def reset(self) -> None:
        """See `state.Optimizer`."""
        self._steps = 0
        for tensors in self._rule.kept().values():
            for tensor in tensors:
                tensor.zero_()

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """See `state.Resumable`."""
        return {
            f"{name}.{kind}": tensor
            for kind, tensors in self._rule.kept().items()
            for name, tensor in self._matrices.named(names, tensors).items()
            if tensor.numel()
        }

    def resume(self, steps: Scalar) -> None:
        """See `state.Resumable`."""
        self._steps = steps


class Combined:
    """Run several optimizers, each for different parameters of one model, as one."""

    def __init__(self, *optimizers: Resumable) -> None:
        self._optimizers = optimizers

    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """See `state.Optimizer`."""
        for optimizer in self._optimizers:
            optimizer.step(learning_rate, coefficient, taken)

    def reset(self) -> None:
        """See `state.Optimizer`."""
        for optimizer in self._optimizers:
            optimizer.reset()

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """See `state.Resumable`."""
        return {name: moment for one in self._optimizers for name, moment in one.moments(names).items()}

    def resume(self, steps: Scalar) -> None:
        """See `state.Resumable`."""
        for optimizer in self._optimizers:
            optimizer.resume(steps)
