"""Train ranks independently for some steps, then make their weights equal again by one outer step.

With `anchor`, the weights after the last outer step, and w_r, the weights of rank r:

    delta    = anchor - mean over r of w_r
    velocity = momentum * velocity + delta
    anchor   = anchor - rate * (delta + momentum * velocity)

That is SGD with Nesterov's momentum as torch.optim.SGD computes it, on weights that moved by -delta (DiLoCo, Douillard
et al. 2023). With rate 1 and momentum 0 all ranks continue with their mean (local SGD, Stich 2019). Each rank keeps its
own moments.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, distributed

from bertbench.common.phase_clock import ALL_REDUCE, in_phase
from bertbench.config.optimizer import Sync
from bertbench.gradients.buckets import Weights
from bertbench.gradients.exchange import Exchange
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.optim.average import EvaluationView


class OuterStepView(EvaluationView):
    """The weights of a model on one rank, which agree with the others' only after every `sync.every_steps` steps.

    An evaluation sees the ranks' mean.
    """

    def __init__(self, tensors: LogicalTensors, sync: Sync, exchange: Exchange) -> None:
        super().__init__(Weights(), tensors)
        assert sync.outer is not None, "ranks train alone"
        (self._rate, self._momentum), self._every = sync.outer, sync.every_steps
        self._tensors, self._exchange = tensors, exchange
        self._anchor = torch.cat(self._held)
        self._velocity = torch.zeros_like(self._anchor) if self._momentum else None
        self._agreed = True

    def reset(self) -> None:
        """Restart from the model's weights, which must be equal on all ranks; call it after a warm-up."""
        torch.cat(self._held, out=self._anchor)
        if self._velocity is not None:
            self._velocity.zero_()
        self._agreed = True

    def after_step(self, steps: int) -> None:
        """Take the outer step if one is due after `steps` steps of every rank. Collective."""
        self._agreed = steps % self._every == 0
        if not self._agreed:
            return
        mean = self._mean()
        if self._velocity is not None:
            delta = self._anchor - mean
            self._velocity.mul_(self._momentum).add_(delta)
            self._anchor.sub_(delta.add_(self._velocity, alpha=self._momentum), alpha=self._rate)
        else:
            self._anchor.lerp_(mean, self._rate)  # exactly the mean at rate 1
        torch._foreach_copy_(self._held, self._pieces(self._anchor))

    def _seen(self) -> list[Tensor] | None:
        return None if self._agreed else self._pieces(self._mean())

    def reported_loss(self, loss: Tensor, norm: Tensor) -> Tensor:
        """See `EvaluationView`: each rank has its own norm, and one that isn't finite reaches all through the loss."""
        return loss + 0 * norm

    def state(self, names: Mapping[Tensor, str], own: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return `own` under this rank's name, and what ranks share.

        That is `model.*`, the weights after the last outer step, and `outer.*`, its velocity.
        """
        rank = distributed.get_rank()
        shared = {
            f"{part}.{name}": tensor
            for part, flat in (("model", self._anchor), ("outer", self._velocity))
            if flat is not None
            for name, tensor in self._tensors.by_name(names, self._pieces(flat)).items()
        }
        return {f"rank.{rank}.{name}": tensor for name, tensor in own.items()} | shared

    def resume(self, steps: int) -> None:
        """See `EvaluationView`."""
        self._agreed = steps % self._every == 0

    def _mean(self) -> Tensor:
        flat = torch.cat(self._held)
        with in_phase(ALL_REDUCE):
            self._exchange.sum(flat)()
        return flat.div_(distributed.get_world_size())

    def _pieces(self, flat: Tensor) -> list[Tensor]:
        return list(flat.split([weight.numel() for weight in self._held]))
