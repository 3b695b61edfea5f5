"""NAdamW: AdamW with Nesterov momentum, which uses the next step's momentum (Dozat 2016, constant beta1).

u = (beta1 m / (1 - beta1^(t+1)) + (1 - beta1) g / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
"""

import torch

from bertbench.optim.foreach import advance_moments, denominators, subtract
from bertbench.optim.options import AdamOptions
from bertbench.optim.state import Scalar, State, StepScalars


def nadamw_step(state: State, options: AdamOptions, decay: float, trust_ratio: bool, scalars: StepScalars) -> None:
    """Update weights and moments by multi-tensor operations; it overwrites the gradients."""
    assert not trust_ratio, "NAdamW has no trust ratio"
    weights, gradients, firsts, seconds = state
    advance_moments(state, options, scalars)
    next_correction: Scalar = 1 - options.beta1 * (1 - scalars.correction1)
    torch._foreach_mul_(gradients, (1 - options.beta1) / scalars.correction1)
    ahead = torch._foreach_mul(firsts, options.beta1 / next_correction)
    torch._foreach_add_(gradients, ahead)
    torch._foreach_div_(gradients, denominators(seconds, options, scalars))
    if decay:
        torch._foreach_add_(gradients, weights, alpha=decay)
    subtract(weights, gradients, scalars.learning_rate)
