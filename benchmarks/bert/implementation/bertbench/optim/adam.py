"""Adam and LAMB in multi-tensor passes: a handful of calls a step, however many tensors there are.

LAMB is Adam with decoupled weight decay whose update is rescaled per tensor, so one class does both.
Sources: Kingma and Ba 2015; Loshchilov and Hutter 2019 (AdamW); You et al. 2020 (LAMB); NVIDIA apex FusedLAMB for
the details that MLPerf's reference fixes (bias correction, eps outside the root, exclusions, no clamp).
"""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from bertbench.optim.options import AdamOptions

Tensors = list[torch.Tensor]

# Biases and LayerNorm parameters have one dimension; everything else is a matrix.
_MATRIX_DIMENSIONS = 2


class MultiTensorAdam:
    """Adam with decoupled weight decay; with `trust_ratio`, LAMB.

    With m and v the bias-corrected moments: update = m / (sqrt(v) + eps) + weight_decay * w, then
    w -= lr * ratio * update. In LAMB ratio = |w| / |update| per tensor, 1 if either norm is 0; in Adam it is 1.
    Biases and LayerNorm parameters get neither weight decay nor a trust ratio. A fused query-key-value matrix
    counts as three tensors: `fused` says how many logical tensors a parameter holds along its first dimension.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        options: AdamOptions,
        trust_ratio: bool,
        fused: Mapping[torch.Tensor, int] | None = None,
    ) -> None:
        self.options = options
        self._fused = fused or {}
        self.trust_ratio = trust_ratio
        self.steps = 0
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        self._matrices = [parameter for parameter in trained if parameter.dim() >= _MATRIX_DIMENSIONS]
        self._vectors = [parameter for parameter in trained if parameter.dim() < _MATRIX_DIMENSIONS]
        self._moments = {parameter: (torch.zeros_like(parameter), torch.zeros_like(parameter)) for parameter in trained}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update every parameter from its gradient; all of them must have one."""
        self.steps += 1
        self._update(self._matrices, learning_rate, self.options.weight_decay, self.trust_ratio)
        self._update(self._vectors, learning_rate, 0.0, trust_ratio=False)

    def _update(self, parameters: list[nn.Parameter], learning_rate: float, decay: float, trust_ratio: bool) -> None:
        if not parameters:
            return
        weights: Tensors = [*parameters]
        gradients = [_gradient(parameter) for parameter in parameters]
        firsts, seconds = (list(moments) for moments in zip(*(self._moments[p] for p in parameters), strict=True))
        options = self.options
        torch._foreach_lerp_(firsts, gradients, 1 - options.beta1)
        torch._foreach_mul_(seconds, options.beta2)
        torch._foreach_addcmul_(seconds, gradients, gradients, 1 - options.beta2)
        # m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), with the corrections as scalars
        updates: Tensors = [*torch._foreach_div(seconds, 1 - options.beta2**self.steps)]
        torch._foreach_sqrt_(updates)
        torch._foreach_add_(updates, options.epsilon)
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, firsts)
        torch._foreach_div_(updates, 1 - options.beta1**self.steps)
        if decay:
            torch._foreach_add_(updates, weights, alpha=decay)
        if trust_ratio:
            self._scale_by_trust_ratio(parameters, updates)
        torch._foreach_add_(weights, updates, alpha=-learning_rate)

    def _scale_by_trust_ratio(self, parameters: list[nn.Parameter], updates: Tensors) -> None:
        weight_parts: Tensors = []
        update_parts: Tensors = []
        for parameter, update in zip(parameters, updates, strict=True):
            parts = self._fused.get(parameter, 1)
            weight_parts += parameter.detach().chunk(parts)
            update_parts += update.chunk(parts)
        weight_norms = torch.stack(torch._foreach_norm(weight_parts))
        update_norms = torch.stack(torch._foreach_norm(update_parts))
        known = (weight_norms > 0) & (update_norms > 0)
        ratios = torch.where(known, weight_norms / update_norms, torch.ones_like(weight_norms))
        torch._foreach_mul_(update_parts, list(ratios.unbind()))

    def state_dict(self) -> dict[str, object]:
        """Steps taken and both moments, in the order of the parameters; tensors are references."""
        return {"steps": self.steps, "moments": list(self._moments.values())}

    @torch.no_grad()
    def reset(self) -> None:
        """Forget all steps, as if the optimiser were new; after a warm-up."""
        self.steps = 0
        for moments in self._moments.values():
            torch._foreach_zero_(list(moments))


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None, "every trained parameter takes part in every step"
    return parameter.grad
