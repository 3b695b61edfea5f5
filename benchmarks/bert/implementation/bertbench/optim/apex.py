"""Wrap NVIDIA apex's FusedLAMB in our optimizer interface. It needs CUDA.

NVIDIA's PyTorch containers include apex. The package that pip installs as `apex` is another project.

FusedLAMB stores moments as torch's optimizers do (`exp_avg`, `exp_avg_sq`) and counts steps in each group (`step`). It
creates moments only for parameters without any. So it keeps the moments that we set before the first step, and a
snapshot holds them under the same names as MultiTensorAdam's.
"""

import importlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bertbench.common.errors import ConfigError
from bertbench.common.scalars import Scalar
from bertbench.config.optimizer import OptimizerSettings
from bertbench.model.logical_tensors import LogicalTensors, matrices_and_vectors

_NO_CLIP = 1e30  # FusedLAMB always clips; our gradient is already clipped
_FIRST, _SECOND = "exp_avg", "exp_avg_sq"


class ApexLamb:
    """apex's FusedLAMB: MultiTensorAdam's formulas for LAMB in apex's kernels.

    Raises ConfigError if NVIDIA's apex is not installed.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        options: OptimizerSettings,
        fused: Mapping[Tensor, int],
    ) -> None:
        try:
            self._class = importlib.import_module("apex.optimizers").FusedLAMB
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"optimizer.impl apex: NVIDIA's apex isn't installed ({error}); run in NVIDIA's PyTorch container "
                "(nvidia/pytorch in the NGC catalogue), which includes it, or set optimizer.impl to torch"
            ) from error
        matrices, vectors = matrices_and_vectors(parameters)
        self._tensors = [LogicalTensors(matrices, fused), LogicalTensors(vectors, fused)]
        # apex accepts only parameters, so make one of each logical tensor, on the same memory
        self._matrix_parameters = [nn.Parameter(weight) for weight in self._tensors[0].weights]
        self._vector_parameters = [nn.Parameter(weight) for weight in self._tensors[1].weights]
        self._settings = {
            "betas": (options.beta1, options.beta2),
            "eps": options.epsilon,
            "max_grad_norm": _NO_CLIP,
        }
        self._weight_decay = options.weight_decay
        self.reset()

    @torch.no_grad()
    def step(self, learning_rate: Scalar, coefficient: Tensor | None = None, taken: Tensor | None = None) -> None:
        """Update every parameter; see `interface.Optimizer`. apex can't skip a step without waiting for the device."""
        assert taken is None, "the configuration refuses loss scaling with apex"
        gradients = [gradient for tensors in self._tensors for gradient in tensors.gradients()]
        if coefficient is not None:
            torch._foreach_mul_(gradients, coefficient)
        for parameter, gradient in zip(self._matrix_parameters + self._vector_parameters, gradients, strict=True):
            parameter.grad = gradient
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()

    def moments(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return first and second moments, `<name>.first` and `<name>.second`; see `interface.Optimizer`."""
        moment_by_name: dict[str, Tensor] = {}
        for tensors, parameters in zip(self._tensors, (self._matrix_parameters, self._vector_parameters), strict=True):
            for suffix, key in (("first", _FIRST), ("second", _SECOND)):
                moments = [self._optimizer.state[parameter][key] for parameter in parameters]
                for name, moment in tensors.by_name(names, moments).items():
                    moment_by_name[f"{name}.{suffix}"] = moment
        return moment_by_name

    def resume(self, steps: Scalar) -> None:
        """Set apex's counts of steps; see `interface.Optimizer`."""
        for group in self._optimizer.param_groups:
            group["step"] = int(steps)

    def reset(self) -> None:
        """Forget all steps, as if the optimizer were new; call it after a warm-up."""
        groups = []
        if self._matrix_parameters:
            groups.append({"params": self._matrix_parameters, "weight_decay": self._weight_decay})
        if self._vector_parameters:
            # without weight decay, FusedLAMB applies no trust ratio
            groups.append({"params": self._vector_parameters, "weight_decay": 0.0})
        self._optimizer = self._class(groups, **self._settings)
        for parameter in (*self._matrix_parameters, *self._vector_parameters):
            moments = {_FIRST: torch.zeros_like(parameter), _SECOND: torch.zeros_like(parameter)}
            self._optimizer.state[parameter] = moments
        self.resume(0)
