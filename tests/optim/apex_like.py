"""Stand in for NVIDIA's apex, which needs CUDA: an optimizer that keeps its state as FusedLAMB does.

Moments are made where a parameter has no state yet, as `exp_avg` and `exp_avg_sq`; each group counts its steps as
`step`. LAMB takes no trust ratio in a group without weight decay.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor


class FusedLAMB(torch.optim.Optimizer):
    """LAMB with bias correction, and a clipping threshold out of reach, because we have clipped already."""

    def __init__(
        self,
        params: Any,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
    ) -> None:
        assert max_grad_norm > 1e20
        super().__init__(params, {"lr": 1e-3, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override] - without a loss
        del closure
        for group in self.param_groups:
            group["step"] = group["step"] + 1 if "step" in group else 1
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                self._apply(parameter, state["exp_avg"], state["exp_avg_sq"], group)

    def _apply(self, weight: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        first.mul_(beta1).add_(weight.grad, alpha=1 - beta1)
        second.mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
        unbiased_first = first / (1 - beta1 ** group["step"])
        unbiased_second = second / (1 - beta2 ** group["step"])
        update = unbiased_first / (unbiased_second.sqrt() + group["eps"]) + group["weight_decay"] * weight
        ratio = weight.norm() / update.norm() if group["weight_decay"] else 1.0
        weight -= group["lr"] * ratio * update


@contextmanager
def apex_installed() -> Iterator[None]:
    """In the body, `apex.optimizers` has this FusedLAMB."""
    package, optimizers = ModuleType("apex"), ModuleType("apex.optimizers")
    vars(optimizers).update(FusedLAMB=FusedLAMB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "apex", package)
        patch.setitem(sys.modules, "apex.optimizers", optimizers)
        yield
