"""What an optimiser is to the rest, and what a step of Adam or LAMB works on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from bertbench.model.bert import Bert
from bertbench.optim.options import AdamOptions

# Biases and LayerNorm parameters have one dimension; everything else is a matrix.
_MATRIX_DIMENSIONS = 2

Scalar = float | torch.Tensor
"""A number, or a tensor without dimensions whose value the host doesn't know."""


def scalar_tensor(scalar: Scalar, device: torch.device) -> torch.Tensor:
    """Return a number as a float32 tensor without dimensions; torch.tensor would wait for a GPU."""
    return scalar.float() if isinstance(scalar, torch.Tensor) else torch.full((), scalar, device=device)


class Optimizer(Protocol):
    """Updates parameters from their gradients; what stood in the gradients is used up."""

    def step(
        self, learning_rate: Scalar, coefficient: torch.Tensor | None = None, taken: torch.Tensor | None = None
    ) -> None:
        """Take one step with the gradient times `coefficient`.

        `taken` is 1, or 0 to skip: then weights, moments and the count of steps stay, whatever the gradients hold.
        It is None in a run that skips nothing. No value is read back from the device.
        """

    def reset(self) -> None:
        """Forget all steps, as if the optimiser were new; after a warm-up."""


@runtime_checkable
class Resumable(Optimizer, Protocol):
    """An optimizer whose state can be kept and put back."""

    def moments(self, names: Mapping[torch.Tensor, str]) -> dict[str, torch.Tensor]:
        """This rank's moments as they are in memory, by names made from those of the parameters."""

    def resume(self, steps: Scalar) -> None:
        """Go on as after so many steps, whose moments were put back."""


class State(NamedTuple):
    """Equally long lists of flat tensors: at one place of all lists stands one logical tensor."""

    weights: list[torch.Tensor]
    gradients: list[torch.Tensor]
    firsts: list[torch.Tensor]
    seconds: list[torch.Tensor]


class StepScalars(NamedTuple):
    """What changes from step to step."""

    learning_rate: Scalar
    """0 in a step that is skipped."""
    correction1: Scalar
    """1 - beta1 ** t, where t counts the steps taken."""
    correction2: Scalar
    coefficient: torch.Tensor | None
    """Factor on the gradient, finite; 0 in a step that is skipped."""
    taken: torch.Tensor | None
    """1, or 0 in a step that is skipped; None in a run that skips nothing."""
    steps: Scalar
    """Steps taken, this one with them."""


Step = Callable[[State, AdamOptions, float, bool, StepScalars], None]
"""(state, options, weight decay, whether a trust ratio scales the updates, scalars): one step of all tensors."""


def matrices_and_vectors(parameters: Iterable[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The trained parameters that get weight decay and a trust ratio, and those that don't."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return (
        [parameter for parameter in trained if parameter.dim() >= _MATRIX_DIMENSIONS],
        [parameter for parameter in trained if parameter.dim() < _MATRIX_DIMENSIONS],
    )


class Tensors(Protocol):
    """Flat tensors that an optimizer updates, each a logical tensor or this rank's part of one."""

    weights: list[torch.Tensor]

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients of `weights`; all parameters must have one."""

    def named(self, names: Mapping[torch.Tensor, str], flat: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return tensors that go with `weights`, by names made from those of the parameters, for a snapshot."""


class LogicalTensors:
    """Parameters as flat logical tensors on the same memory, which they must not leave.

    `fused` says how many logical tensors a parameter holds along its first dimension, where it isn't one. Of a
    parameter that is sharded over ranks (a DTensor, which is never fused), this rank's shard counts.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], fused: Mapping[torch.Tensor, int]) -> None:
        self._parameters = parameters
        self._parts = [fused.get(parameter, 1) for parameter in parameters]
        weights = [parameter.detach() for parameter in parameters]
        assert all(local(weight).is_contiguous() for weight in weights), "an update of a copy would be lost"
        self.weights = self._flat(weights)

    def named(self, names: Mapping[torch.Tensor, str], flat: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Tensors that go with `weights`, by names made from those of the parameters, in the shapes of the weights.

        They stay on the same memory; where the parameter is a DTensor, so is its companion.
        """
        companions = iter(flat)
        return {
            name: _like(part, next(companions))
            for parameter, parts in zip(self._parameters, self._parts, strict=True)
            for name, part in logical(names[parameter], parameter.detach(), parts).items()
        }

    def gradients(self) -> list[torch.Tensor]:
        """The gradients of `weights`; all parameters must have one."""
        gradients = []
        for parameter in self._parameters:
            assert parameter.grad is not None, "every trained parameter takes part in every step"
            gradients.append(parameter.grad)
        return self._flat(gradients)

    def _flat(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [
            part
            for tensor, parts in zip(tensors, self._parts, strict=True)
            for part in local(tensor).reshape(-1).chunk(parts)
        ]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard of a DTensor; any other tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def logical(name: str, tensor: torch.Tensor, parts: int) -> dict[str, torch.Tensor]:
    """The logical tensors that a parameter holds, by name: its own, or `<name>.0`, `<name>.1` and so on."""
    if parts == 1:
        return {name: tensor}
    return {f"{name}.{part}": piece for part, piece in enumerate(tensor.chunk(parts))}


def logical_tensors(
    names: Mapping[torch.Tensor, str], parameters: Sequence[nn.Parameter], fused: Mapping[torch.Tensor, int]
) -> dict[str, torch.Tensor]:
    """Return the logical tensors of several parameters by name, in their order and on their memory."""
    several = [logical(names[one], one.detach(), fused.get(one, 1)) for one in parameters]
    return {name: tensor for tensors in several for name, tensor in tensors.items()}


def logical_shapes(parameters: Sequence[nn.Parameter], fused: Mapping[torch.Tensor, int]) -> list[torch.Size]:
    """Return the shapes of the logical tensors of several parameters, in their order."""
    return [part.shape for one in parameters for part in logical("", one.detach(), fused.get(one, 1)).values()]


def whole_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return all of a DTensor, for which every rank of its mesh must ask; any other tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def logical_weights(model: Bert) -> dict[str, torch.Tensor]:
    """Return the logical tensors of a whole model by name, as they are in its memory."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return logical_tensors(names, list(model.parameters()), model.fused_parameters())


def _like(weight: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    if not isinstance(weight, DTensor):
        return flat.view(weight.shape)
    return DTensor.from_local(
        flat.view(weight.to_local().shape), weight.device_mesh, weight.placements, run_check=False,
        shape=weight.shape, stride=weight.stride(),
    )  # fmt: skip
