"""A step of LAMB on a CPU without a compiler: torch's fused Adam on one block at a time, which stays in the cache.

Memory is the limit. A block's weights, gradients and moments are read once, its update is left in the gradients'
place, and both norms are taken while it is in the cache. When a tensor's norms are whole, one more pass over its
weights and updates scales and subtracts them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bertbench.optim.foreach import adam_kernel, subtract_scaled
from bertbench.optim.options import AdamOptions
from bertbench.optim.state import State, StepScalars, scalar_tensor

# Four blocks of float32 (weights, gradients, both moments) are 2 MB a core, as a Xeon's second-level cache: half as
# large takes 5 % longer (calls), half as large again no less.
BLOCK_PER_THREAD = 131_072


def blocks_step(
    state: State,
    options: AdamOptions,
    decay: float,
    trust_ratio: bool,
    scalars: StepScalars,
    whole_norms: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Do what `foreach.foreach_step` does with a trust ratio; what stood in the gradients is used up.

    With `whole_norms` (see there) the second pass begins when all tensors had their first, and finds none in the cache.
    """
    assert trust_ratio, "torch has a fused Adam of its own"
    # The kernel computes p - rate (u + decay p). With -1 for both, u takes the place of p: of the gradient that it is
    # made from, since the kernel reads each number before it writes there (tests/optim/test_fused.py holds it to that).
    kernel = adam_kernel(options, -1.0, -1.0, scalars)
    steps = [scalar_tensor(scalars.steps, state.weights[0].device)]
    block = BLOCK_PER_THREAD * torch.get_num_threads()
    all_squares = []
    for weight, gradient, first, second in zip(*state, strict=True):
        squares = []
        for weights, updates, firsts, seconds in zip(
            *(tensor.split(block) for tensor in (weight, gradient, first, second)), strict=True
        ):
            if scalars.taken is not None:  # what the kernel leaves alone in a step that is skipped
                updates.nan_to_num_(0.0, 0.0, 0.0)
            kernel([updates], [updates], [firsts], [seconds], [], steps)
            updates.add_(weights, alpha=decay)
            squares += [torch.dot(weights, weights), torch.dot(updates, updates)]
        both_2 = torch.stack(squares).view(-1, 2).sum(0)
        if whole_norms is None:
            subtract_scaled(weight, gradient, (both_2[0], both_2[1]), scalars.learning_rate)
        else:
            all_squares.append(both_2)
    if whole_norms is not None:
        whole = whole_norms(torch.stack(all_squares, 1).sqrt()).square()
        for weight, gradient, both_2 in zip(state.weights, state.gradients, whole.unbind(1), strict=True):
            subtract_scaled(weight, gradient, (both_2[0], both_2[1]), scalars.learning_rate)
