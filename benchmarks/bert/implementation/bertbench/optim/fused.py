"""Take a LAMB step in two passes over memory that torch.compile fuses.

LAMB needs the second pass because the norm of an update is known only when the whole update has been computed. The
update overwrites the gradient, so neither pass needs extra memory. A pass takes one flat tensor of any size, so one
compilation serves all tensors. On a CPU the second pass finds most tensors still in cache.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bertbench.common.scalars import scalar_tensor
from bertbench.config.optimizer import OptimizerSettings
from bertbench.optim.adam import subtract_scaled
from bertbench.optim.interface import StepScalars, StepTensors

_FourTensors = tuple[Tensor, Tensor, Tensor, Tensor]
"""The flat weight, gradient, first moment and second moment of one logical tensor; or four numbers of a step."""


class FusedStep:
    """Take the step of `adam.foreach_step` with a trust ratio; the first step compiles for about 10 s.

    The compiler chooses how many GPU blocks add up a norm. It chooses once, from the first tensor that it sees, so the
    largest tensor comes first. `compiler_obstacle` in model/compiled.py says whether the device has a compiler.
    """

    def __init__(self, device: torch.device) -> None:
        self._first_pass = _fuse(_lamb_first)
        # on a CPU by torch's own call, which takes 31 ms for 107 million parameters; a compiled one takes 41 ms
        in_one_call = device.type == "cpu" and not torch.compiler.is_compiling()
        self._second_pass = subtract_scaled if in_one_call else _fuse(subtract_scaled)

    def __call__(self, tensors: StepTensors, options: OptimizerSettings, scalars: StepScalars) -> None:
        """Update weights and moments by MultiTensorAdam's formulas for LAMB; overwrite the gradients."""
        assert options.trust_ratio, "Adam steps use torch's own fused kernel"
        device = tensors.weights[0].device
        constants = (options.beta1, options.beta2, options.epsilon, options.weight_decay)  # compiled in
        # multiplying by factors saves two divisions for each element, a fifth of a step's time on two cores
        numbers = (
            scalar_tensor(1 / scalars.correction1, device),
            scalar_tensor(1 / scalars.correction2, device),
            scalar_tensor(1.0 if scalars.coefficient is None else scalars.coefficient, device),
            scalar_tensor(1.0 if scalars.taken is None else scalars.taken, device),
        )
        rate = scalar_tensor(scalars.learning_rate, device)
        largest_first = sorted(zip(*tensors, strict=True), key=lambda four_tensors: -four_tensors[0].numel())
        for weight, gradient, first, second in largest_first:
            squares = self._first_pass((weight, gradient, first, second), numbers, constants)
            self._second_pass(weight, gradient, squares, rate)


def _fuse(function: Callable[..., Any]) -> Callable[..., Any]:
    # dynamic shapes, and no pool of compiling processes on every rank for two small kernels
    return torch.compile(function, dynamic=True, fullgraph=True, options={"compile_threads": 1})


def _lamb_first(
    tensors: _FourTensors, numbers: _FourTensors, constants: tuple[float, float, float, float]
) -> tuple[Tensor, Tensor]:
    """Advance the moments, make the gradient m / (sqrt(v) + eps) + weight_decay * w; return both squared norms."""
    weight, gradient, first, second = tensors
    over_correction1, over_correction2, coefficient, taken = numbers
    beta1, beta2, epsilon, decay = constants
    clipped = gradient * coefficient
    first.copy_(torch.where(taken > 0, first.lerp(clipped, 1 - beta1), first))
    second.copy_(torch.where(taken > 0, second * beta2 + clipped.square() * (1 - beta2), second))
    corrected = second * over_correction2
    gradient.copy_(first * over_correction1 / (corrected.sqrt() + epsilon) + decay * weight)
    return weight.square().sum(), gradient.square().sum()
