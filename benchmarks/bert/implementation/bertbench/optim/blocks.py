"""Take optimizer steps on a CPU without a compiler, one cache-sized block at a time.

Memory bandwidth is the limit. LAMB is torch's fused Adam on a block: weights, gradients and moments are read once, the
update overwrites the gradients, and both norms are computed while it is in cache. Once a tensor's norms are complete,
one more pass over its weights and updates scales and subtracts the updates.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bertbench.config.optimizer import OptimizerSettings
from bertbench.optim.foreach import adam_kernel, subtract_scaled
from bertbench.optim.state import State, StepScalars, scalar_tensor

# Four blocks of float32 (weights, gradients, both moments) take 2 MB a core, a Xeon's second-level cache: half the size
# takes 5 % longer (more calls), 1.5 times the size is no faster.
BLOCK_PER_THREAD = 131_072


def blocks_step(
    state: State,
    options: OptimizerSettings,
    decay: float,
    trust_ratio: bool,
    scalars: StepScalars,
    whole_norms: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Take the step of `foreach.foreach_step` with a trust ratio; it overwrites the gradients.

    With `whole_norms` (see there) the second pass starts only after every tensor's first, so none is still in cache.
    """
    assert trust_ratio, "Adam steps use torch's own fused kernel"
    # The kernel computes p - rate (u + decay p). With rate and decay -1, u overwrites p. Here p is the gradient itself:
    # the kernel reads each number before it writes there, which tests/optim/test_fused.py checks.
    kernel = adam_kernel(options, -1.0, -1.0, scalars)
    steps = [scalar_tensor(scalars.steps, state.weights[0].device)]
    all_squares = []
    for weight, gradient, first, second in zip(*state, strict=True):
        squares = []
        for weights, updates, firsts, seconds in _blocks((weight, gradient, first, second)):
            if scalars.taken is not None:  # the kernel doesn't skip steps by itself
                updates.nan_to_num_(0.0, 0.0, 0.0)
            kernel([updates], [updates], [firsts], [seconds], [], steps)
            updates.add_(weights, alpha=decay)
            # not torch.dot: two threads of MKL sum by the memory's alignment on an AMD, and replicas would drift apart
            squares += [torch.linalg.vector_norm(one).square() for one in (weights, updates)]
        both_2 = torch.stack(squares).view(-1, 2).sum(0)
        if whole_norms is None:
            subtract_scaled(weight, gradient, (both_2[0], both_2[1]), scalars.learning_rate)
        else:
            all_squares.append(both_2)
    if whole_norms is not None:
        whole = whole_norms(torch.stack(all_squares, 1).sqrt()).square()
        for weight, gradient, both_2 in zip(state.weights, state.gradients, whole.unbind(1), strict=True):
            subtract_scaled(weight, gradient, (both_2[0], both_2[1]), scalars.learning_rate)


def _blocks(tensors: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
    """Yield the blocks of one logical tensor's weights, gradients and moments."""
    size = BLOCK_PER_THREAD * torch.get_num_threads()
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)
