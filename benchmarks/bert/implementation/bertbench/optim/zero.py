"""ZeRO-1: each rank keeps the optimiser state of its share of the parameters, updates those, and sends them round.

Whole parameters are dealt out, since LAMB's trust ratio is a ratio of whole norms; so every tensor is updated by the
same arithmetic as without sharding, and the result is the same to the last bit (Rajbhandari et al. 2020, stage 1).
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import distributed, nn

from bertbench.optim.state import Optimizer, Resumable, Scalar


def deal(sizes: Sequence[int], ranks: int) -> list[int]:
    """The rank that gets each size: the largest first, each to the rank that has the least so far."""
    owners, loads = [0] * len(sizes), [0] * ranks
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += sizes[index]
    return owners


class ShardedOptimizer:
    """An optimizer of this rank's parameters, whose result all ranks get.

    Costs one broadcast of all weights a step; saves (R - 1) / R of two moments.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], build: Callable[[list[nn.Parameter]], Optimizer]) -> None:
        owners = deal([parameter.numel() for parameter in parameters], distributed.get_world_size())
        self._shares: list[list[torch.Tensor]] = [[] for _ in range(distributed.get_world_size())]
        for parameter, owner in zip(parameters, owners, strict=True):
            self._shares[owner].append(parameter.detach())
        own = distributed.get_rank()
        share = [parameter for parameter, owner in zip(parameters, owners, strict=True) if owner == own]
        self.local = build(share) if share else None
        """The optimizer of this rank's share; None where there are more ranks than parameters."""

    @torch.no_grad()
    def step(
        self, learning_rate: Scalar, coefficient: torch.Tensor | None = None, taken: torch.Tensor | None = None
    ) -> None:
        """Update every parameter on every rank; see `state.Optimizer`."""
        if self.local is not None:
            self.local.step(learning_rate, coefficient, taken)
        for owner, weights in enumerate(self._shares):
            if weights:
                flat = torch.cat([weight.view(-1) for weight in weights])
                distributed.broadcast(flat, owner)
                pieces = flat.split([weight.numel() for weight in weights])
                torch._foreach_copy_(weights, [p.view_as(w) for p, w in zip(pieces, weights, strict=True)])

    def reset(self) -> None:
        """Forget all steps, as if the optimizer were new; after a warm-up."""
        if self.local is not None:
            self.local.reset()

    def moments(self, names: Mapping[torch.Tensor, str]) -> dict[str, torch.Tensor]:
        """See `state.Resumable`: those of this rank's share."""
        return self.local.moments(names) if isinstance(self.local, Resumable) else {}

    def resume(self, steps: Scalar) -> None:
        """See `state.Resumable`."""
        if isinstance(self.local, Resumable):
            self.local.resume(steps)
