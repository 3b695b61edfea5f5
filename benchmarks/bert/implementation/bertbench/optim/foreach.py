"""A step of Adam or LAMB as torch's multi-tensor calls: no compiler needed, a dozen passes over memory."""

from collections.abc import Callable

import torch

from bertbench.optim.options import AdamOptions
from bertbench.optim.state import Scalar, State, StepScalars


def foreach_step(
    state: State,
    options: AdamOptions,
    decay: float,
    trust_ratio: bool,
    scalars: StepScalars,
    whole_norms: Callable[[torch.Tensor], torch.Tensor] = lambda norms: norms,
) -> None:
    """Update weights and moments as MultiTensorAdam says; what stood in the gradients is used up.

    Where ranks hold shards, `whole_norms` makes norms of whole tensors from those of this rank's shards: [2, tensors]
    in and out, weights above updates.
    """
    weights, gradients, firsts, seconds = state
    share1: float | list[torch.Tensor] = 1 - options.beta1
    keep2: Scalar = options.beta2
    if scalars.taken is not None:  # in a step that is skipped, gradients are 0 and moments keep their values
        for gradient in gradients:
            gradient.nan_to_num_(0.0, 0.0, 0.0)
        share1 = [(1 - options.beta1) * scalars.taken] * len(gradients)
        keep2 = 1 - (1 - options.beta2) * scalars.taken
    if scalars.coefficient is not None:
        torch._foreach_mul_(gradients, scalars.coefficient)
    torch._foreach_lerp_(firsts, gradients, share1)
    torch._foreach_mul_(seconds, keep2)
    torch._foreach_addcmul_(seconds, gradients, gradients, 1 - options.beta2)
    # m / c1 / (sqrt(v / c2) + eps), from the inside out, in the gradients' place
    updates = gradients
    torch._foreach_copy_(updates, seconds)
    torch._foreach_div_(updates, scalars.correction2)
    torch._foreach_sqrt_(updates)
    torch._foreach_add_(updates, options.epsilon)
    torch._foreach_reciprocal_(updates)
    torch._foreach_mul_(updates, firsts)
    torch._foreach_div_(updates, scalars.correction1)
    if decay:
        torch._foreach_add_(updates, weights, alpha=decay)
    if trust_ratio:
        norms = [torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, updates)]
        weight_norms, update_norms = whole_norms(torch.stack(norms))
        known = (weight_norms > 0) & (update_norms > 0)
        ratios = torch.where(known, weight_norms / update_norms, torch.ones_like(weight_norms))
        torch._foreach_mul_(updates, list(ratios.unbind()))
    if isinstance(scalars.learning_rate, torch.Tensor):
        torch._foreach_mul_(updates, scalars.learning_rate)
        torch._foreach_sub_(weights, updates)
    else:
        torch._foreach_add_(weights, updates, alpha=-scalars.learning_rate)
