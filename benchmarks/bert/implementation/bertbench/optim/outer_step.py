"""Let ranks train independently for some steps, then make their weights equal again by one outer step.

With `anchor`, the weights after the last outer step, and w_r, the weights of rank r:

    delta    = anchor - mean over r of w_r
    velocity = momentum * velocity + delta
    anchor   = anchor - rate * (delta + momentum * velocity)

This is SGD with Nesterov's momentum, as torch.optim.SGD computes it, where delta takes the place of the gradient
(DiLoCo, Douillard et al. 2023). With rate 1 and momentum 0, all ranks continue with the mean of their weights (local
SGD, Stich 2019). Each rank keeps its own moments.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, distributed

from bertbench.common.phase_clock import ALL_REDUCE, in_phase
from bertbench.config.optimizer import Sync
from bertbench.gradients.buckets import ModelWeights
from bertbench.gradients.exchange import Exchange
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.optim.average import EvaluationView


class OuterStep:
    """Makes the weights of all ranks equal after every `sync.every_steps` steps, between which each trains its own."""

    def __init__(self, tensors: LogicalTensors, sync: Sync, exchange: Exchange) -> None:
        assert sync.outer is not None, "ranks train alone"
        self._rate, self._momentum = sync.outer
        self._every_steps = sync.every_steps
        self._tensors = tensors
        self._weights = tensors.weights
        self._exchange = exchange
        self._anchor = torch.cat(self._weights)
        self._velocity = torch.zeros_like(self._anchor) if self._momentum else None
        self.weights_agree = True
        """Whether all ranks have the same weights: none has trained since the last outer step."""

    def reset(self) -> None:
        """Restart from the model's weights, which must be equal on all ranks; call it after a warm-up."""
        torch.cat(self._weights, out=self._anchor)
        if self._velocity is not None:
            self._velocity.zero_()
        self.weights_agree = True

    def resume(self, steps: int) -> None:
        """Continue from the restored state, after `steps` steps of every rank."""
        self.weights_agree = steps % self._every_steps == 0

    def take_if_due(self, steps: int) -> None:
        """Take the outer step if one is due after `steps` steps of every rank. Collective."""
        self.weights_agree = steps % self._every_steps == 0
        if not self.weights_agree:
            return
        mean = self._mean()
        if self._velocity is not None:
            delta = self._anchor - mean
            self._velocity.mul_(self._momentum).add_(delta)
            self._anchor.sub_(delta.add_(self._velocity, alpha=self._momentum), alpha=self._rate)
        else:
            self._anchor.lerp_(mean, self._rate)  # exactly the mean at rate 1
        torch._foreach_copy_(self._weights, self._split(self._anchor))

    def mean_weights(self) -> list[Tensor]:
        """Return the mean of the ranks' weights, tensor by tensor. Collective."""
        return self._split(self._mean())

    def state(self, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
        """Return the state that ranks share: weights after the last outer step, `model.*`, and velocity, `outer.*`."""
        anchors = self._tensors.by_name(names, self._split(self._anchor))
        state = {f"model.{name}": tensor for name, tensor in anchors.items()}
        if self._velocity is not None:
            velocities = self._tensors.by_name(names, self._split(self._velocity))
            state |= {f"outer.{name}": tensor for name, tensor in velocities.items()}
        return state

    def _mean(self) -> Tensor:
        flat = torch.cat(self._weights)
        with in_phase(ALL_REDUCE):
            self._exchange.sum(flat)()
        return flat.div_(distributed.get_world_size())

    def _split(self, flat: Tensor) -> list[Tensor]:
        """Split a flat tensor into parts that match the weights."""
        return list(flat.split([weight.numel() for weight in self._weights]))


class MeanView(EvaluationView):
    """The mean of all ranks' weights, which evaluations see between two outer steps."""

    def __init__(self, tensors: LogicalTensors, outer_step: OuterStep) -> None:
        super().__init__(ModelWeights(), tensors)
        self._outer_step = outer_step

    def reset(self) -> None:
        """Restart from the model's weights; see `OuterStep`."""
        self._outer_step.reset()

    def resume(self, steps: int) -> None:
        """Continue as after `steps` steps; see `EvaluationView`."""
        self._outer_step.resume(steps)

    def _evaluated(self) -> list[Tensor] | None:
        return None if self._outer_step.weights_agree else self._outer_step.mean_weights()

    def reported_loss(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Return the loss, or NaN if the norm isn't finite.

        Each rank has its own norm, so this is how the other ranks learn of it.
        """
        return loss + 0 * norm

    def state(self, names: Mapping[Tensor, str], rank_state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return `rank_state` under this rank's name, and the state that ranks share."""
        rank = distributed.get_rank()
        state = {f"rank.{rank}.{name}": tensor for name, tensor in rank_state.items()}
        return state | self._outer_step.state(names)
