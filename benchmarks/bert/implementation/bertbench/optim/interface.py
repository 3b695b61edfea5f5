"""Define the optimizer interface, and the tensors and scalars of a step of Adam or LAMB."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from bertbench.common.scalars import Scalar


class Optimizer(Protocol):
    """Updates parameters from their gradients, and overwrites the gradients."""

    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """Take one step with the gradient times `coefficient`.

        `taken` is 1, or 0 to skip: then weights, moments and the count of steps stay, even if gradients aren't finite.
        It is None in a run that never skips. No value is read back from the device.
        """

    def reset(self) -> None:
        """Forget all steps, as if the optimizer were new; call it after a warm-up."""

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return this rank's moments themselves, under names derived from the parameters'."""

    def resume(self, steps: Scalar) -> None:
        """Continue as after `steps` steps, once their moments are restored."""


class StepTensors(NamedTuple):
    """What a step reads and writes: lists of flat tensors, where the same index in all is one logical tensor."""

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
"""(tensors, options, scalars): one step of all tensors, with the weight decay and the trust ratio of the options.

LAMB's for slices also takes `whole_norms`, which makes norms of whole tensors of this rank's: [2, tensors] in and out.
Triton's also takes `rounded`, a 16-bit copy of each weight or None, which it writes with the weights, and `summed`, the
gradients in 16 bits, which it reads.
"""
