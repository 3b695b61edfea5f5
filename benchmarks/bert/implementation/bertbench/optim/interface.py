"""Define the optimizer interface, and the tensors and scalars of a step of Adam or LAMB."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from bertbench.common.scalars import Scalar


class Optimizer(Protocol):
    """Updates parameters from their gradients, and overwrites the gradients."""

    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """Take one step with the gradient times `coefficient`.

        `taken` is 1, or 0 for a step that is skipped: weights, moments and the count of steps then don't change, even
        if gradients aren't finite. It is None in a run that never skips steps. No value is read back from the device.
        """

    def reset(self) -> None:
        """Forget all steps, as if the optimizer were new; call it after a warm-up."""

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return this rank's moments (the tensors themselves), under names derived from the parameters' names."""

    def resume(self, steps: Scalar) -> None:
        """Continue from the restored moments, after `steps` steps."""


class StepTensors(NamedTuple):
    """The tensors that a step reads and writes: lists of flat tensors; one index is one logical tensor in all lists."""

    weights: list[Tensor]
    gradients: list[Tensor]
    firsts: list[Tensor]
    seconds: list[Tensor]


class StepScalars(NamedTuple):
    """Values that change between steps."""

    learning_rate: Scalar
    """Learning rate; 0 in a skipped step."""
    correction1: Scalar
    """1 - beta1 ** t, where t counts the steps taken."""
    correction2: Scalar
    coefficient: Tensor | None
    """Factor on the gradient, finite; 0 in a skipped step."""
    taken: Tensor | None
    """1, or 0 in a skipped step; None in a run that never skips."""
    steps: Scalar
    """Steps taken, including this one."""


StepFunction = Callable[..., None]
"""Takes one step of all tensors, given (tensors, options, scalars); weight decay and trust ratio are in the options.

LAMB's step for slices also takes `whole_norms`, which turns this rank's norms into norms of whole tensors: [2, tensors]
in and out. Triton's step also takes `rounded`, which holds for each weight a 16-bit copy to write, or None, and
`summed`, which holds the gradients to read in 16 bits.
"""
