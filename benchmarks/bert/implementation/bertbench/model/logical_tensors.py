"""View parameters as flat logical tensors, which optimizers update, norms are computed of, and snapshots name.

A parameter may stack several logical tensors along its first dimension, or be a shard of a tensor (a DTensor).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from bertbench.model.bert import Bert

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from typing_extensions import TypeIs

# Biases and LayerNorm parameters have one dimension; everything else is a matrix.
_MATRIX_DIMENSIONS = 2


def matrices_and_vectors(parameters: Iterable[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trained parameters that get weight decay and a trust ratio, and those that don't."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return (
        [parameter for parameter in trained if parameter.dim() >= _MATRIX_DIMENSIONS],
        [parameter for parameter in trained if parameter.dim() < _MATRIX_DIMENSIONS],
    )


class LogicalTensors:
    """Parameters as flat logical tensors that an optimizer updates.

    The tensors are views, so the parameters must not move in memory. `fused` holds the number of logical tensors that a
    parameter stacks along its first dimension, if more than one. For a parameter that is sharded over ranks (a DTensor,
    which is never fused), the logical tensor is this rank's shard.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], fused: Mapping[Tensor, int]) -> None:
        self._parameters = parameters
        self._parts = [fused.get(parameter, 1) for parameter in parameters]
        weights = [parameter.detach() for parameter in parameters]
        held = [local(weight) for weight in weights]
        assert all(weight.is_contiguous() for weight in held), "an update of a copy would be lost"
        self.weights = self._flat(held)
        self.shapes = [
            tensor.shape
            for weight, parts in zip(weights, self._parts, strict=True)
            for tensor in logical("", weight, parts).values()
        ]
        """Shapes of the logical tensors, one by one."""

    def by_name(self, names: Mapping[Tensor, str], flat: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return tensors that match `weights`, under names derived from the parameters', in the weights' shapes.

        They are views of the given tensors, and DTensors where the parameters are.
        """
        companions = iter(flat)
        return {
            name: _like(part, next(companions))
            for parameter, parts in zip(self._parameters, self._parts, strict=True)
            for name, part in logical(names[parameter], parameter.detach(), parts).items()
        }

    def gradients(self) -> list[Tensor]:
        """Return the gradients of `weights`; all parameters must have one."""
        return self._flat(gradients_of(self._parameters))

    def of_parameters(self, tensors: Mapping[Tensor, Tensor]) -> list[Tensor | None]:
        """Return the part that belongs to each of `weights`, given tensors for some whole parameters."""
        flat: list[Tensor | None] = []
        for parameter, parts in zip(self._parameters, self._parts, strict=True):
            tensor = tensors.get(parameter)
            flat += [None] * parts if tensor is None else tensor.view(-1).chunk(parts)
        return flat

    def _flat(self, tensors: list[Tensor]) -> list[Tensor]:
        return [
            part for tensor, parts in zip(tensors, self._parts, strict=True) for part in tensor.reshape(-1).chunk(parts)
        ]


LogicalTensorFactory = Callable[[Sequence[nn.Parameter], Mapping[Tensor, int]], LogicalTensors]
"""Given parameters and how many logical tensors each stacks, returns the tensors that this rank updates."""


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a DTensor; return any other tensor unchanged."""
    return tensor.to_local() if _sharded(tensor) else tensor


def gradients_of(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return the gradients (for a DTensor, this rank's shard); all parameters must have one."""
    gradients = []
    for parameter in parameters:
        assert parameter.grad is not None, "every trained parameter takes part in every step"
        gradients.append(local(parameter.grad))
    return gradients


def logical(name: str, tensor: Tensor, parts: int) -> dict[str, Tensor]:
    """Return a parameter's logical tensors by name: its own, or `<name>.0`, `<name>.1` and so on."""
    if parts == 1:
        return {name: tensor}
    return {f"{name}.{part}": piece for part, piece in enumerate(tensor.chunk(parts))}


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return a DTensor in full (collective over its mesh); return any other tensor unchanged."""
    return tensor.full_tensor() if _sharded(tensor) else tensor


def logical_weights(model: Bert) -> dict[str, Tensor]:
    """Return views of a whole model's logical tensors, by name."""
    fused = model.fused_parameters()
    return {
        logical_name: tensor
        for name, parameter in model.named_parameters()
        for logical_name, tensor in logical(name, parameter.detach(), fused.get(parameter, 1)).items()
    }


def _like(weight: Tensor, flat: Tensor) -> Tensor:
    if not _sharded(weight):
        return flat.view(weight.shape)
    return type(weight).from_local(
        flat.view(weight.to_local().shape), weight.device_mesh, weight.placements, run_check=False,
        shape=weight.shape, stride=weight.stride(),
    )  # fmt: skip


def _sharded(tensor: Tensor) -> "TypeIs[DTensor]":
    """Return whether a tensor is sharded over ranks. Importing DTensor to test its type would cost 0.4 s a start."""
    return hasattr(tensor, "to_local")
