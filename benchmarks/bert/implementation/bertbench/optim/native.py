"""A step of Adam in torch's own fused kernel: one pass over memory, no compiler needed, on CPU and on CUDA."""

import torch

from bertbench.optim.options import AdamOptions
from bertbench.optim.state import Scalar, State, StepScalars


def native_adam_step(state: State, options: AdamOptions, decay: float, trust_ratio: bool, scalars: StepScalars) -> None:
    """Do what `foreach.foreach_step` does without a trust ratio, by the kernel of torch.optim.AdamW(fused=True)."""
    assert not trust_ratio, "torch has no fused LAMB"
    weights, gradients, firsts, seconds = state
    device = weights[0].device

    def on_device(scalar: Scalar) -> torch.Tensor:
        # torch.tensor would wait for a GPU
        return scalar.float() if isinstance(scalar, torch.Tensor) else torch.full((), scalar, device=device)

    torch._fused_adamw_(
        weights, gradients, firsts, seconds, [], [on_device(scalars.steps)] * len(weights),
        lr=scalars.learning_rate, beta1=options.beta1, beta2=options.beta2, weight_decay=decay, eps=options.epsilon,
        amsgrad=False, maximize=False,
        grad_scale=None if scalars.coefficient is None else scalars.coefficient.float().reciprocal(),
        found_inf=None if scalars.taken is None else 1 - scalars.taken,
    )  # fmt: skip
