"""Hyper-parameters of the optimisers: plain numbers, so that reading a system file doesn't load torch."""

from dataclasses import dataclass
from typing import Literal

OptimizerName = Literal["adam", "lamb"]


@dataclass(frozen=True)
class AdamOptions:
    """Hyper-parameters that stay fixed during a run; the learning rate comes with each step."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
