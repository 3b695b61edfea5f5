"""Let ranks train independently for some steps, then make their weights equal again by one outer step.

With `anchor`, the weights after the last outer step, and w_r, the weights of rank r:

    delta    = anchor - mean over r of w_r
    velocity = momentum * velocity + delta
    anchor   = anchor - rate * (delta + momentum * velocity)

This is SGD with Nesterov's momentum, as torch.optim.SGD computes it, where delta takes the place of the gradient
(DiLoCo, Douillard et al. 2023; diloco.py). With rate 1 and momentum 0, all ranks continue with the mean of their
weights (local SGD, Stich 2019). Each rank keeps its own moments.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, distributed

from bertbench.common.phase_clock import in_phase
from bertbench.common.phases import WAIT
from bertbench.common.section import Count
from bertbench.config.optimizer import GRADIENT_BYTES
from bertbench.config.rules import allow_only
from bertbench.gradients.buckets import Bucket, ModelWeights
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import GradientSum, scale_in_place
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.optim.average import EvaluationView
from bertbench.training.technique import Technique
from lab.techniques.rules import RULES


class LocalSgd(Technique):
    """Ranks train alone, and take the mean of their weights every few steps."""

    name = "local_sgd"
    rules = (
        *RULES,
        *allow_only(
            {"optimizer.ema_decay": (0.0,)},
            where=lambda _: True,
            because="averages over steps, but between outer steps evaluations read the mean of the ranks' weights",
            instead="leave out --technique",
        ),
    )
    state_by_rank: ClassVar[bool] = True

    every_steps: Count = 32
    """Number of steps that a rank takes alone. More steps send less, and may need more samples."""

    @property
    def report_steps(self) -> int:
        """Return the steps between outer steps; see `Technique`."""
        return self.every_steps

    def gradient_sum(self, exchange: Exchange) -> GradientSum:
        """Return the estimate of the sum by a rank's own gradient; see `Technique`."""
        return OwnGradient(exchange, self.every_steps)

    def view(self, weights: ModelWeights, tensors: LogicalTensors, exchange: Exchange) -> EvaluationView:
        """Return the outer step, which sets all weights to their mean; see `Technique`."""
        return OuterStep(weights, tensors, exchange, self.every_steps, rate=1.0, momentum=0.0)


class OwnGradient(GradientSum):
    """Estimates the sum without communication, by this rank's own gradient times the number of ranks."""

    keeps_a_single_one = True

    def __init__(self, exchange: Exchange, every_steps: int) -> None:
        """Take what describes the exchange of weights, which `OuterStep` sums after every `every_steps` steps."""
        self.transport = exchange.transport
        self._every_steps = every_steps

    def bytes_per_step(self, shapes: Sequence[Sequence[int]], bucket_elements: Sequence[int]) -> int:
        """Return a step's share of the weights that an outer step sums; see `GradientSum`."""
        del shapes
        return -(-GRADIENT_BYTES * sum(bucket_elements) // self._every_steps)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Multiply by the number of ranks; see `GradientSum`."""
        scale_in_place(bucket.gradients.mul_(distributed.get_world_size()), factor)


class OuterStep(EvaluationView):
    """Makes the weights of all ranks equal after every `every_steps` steps; in between, evaluations see their mean."""

    def __init__(
        self,
        weights: ModelWeights,
        tensors: LogicalTensors,
        exchange: Exchange,
        every_steps: int,
        rate: float,
        momentum: float,
    ) -> None:
        super().__init__(weights, tensors)
        self._rate = rate
        self._momentum = momentum
        self._every_steps = every_steps
        self._tensors = tensors
        self._exchange = exchange
        self._anchor = torch.cat(self._trained)
        self._velocity = torch.zeros_like(self._anchor) if momentum else None
        self._weights_agree = True
        """Whether all ranks have the same weights: none has trained since the last outer step."""

    def reset(self) -> None:
        """Restart from the model's weights, which must be equal on all ranks; see `EvaluationView`."""
        torch.cat(self._trained, out=self._anchor)
        if self._velocity is not None:
            self._velocity.zero_()
        self._weights_agree = True

    def resume(self, steps: int) -> None:
        """Continue as after `steps` steps of every rank; see `EvaluationView`."""
        self._weights_agree = steps % self._every_steps == 0

    def after_update(self, steps: int) -> None:
        """Take the outer step if one is due. Collective then; see `EvaluationView`."""
        self._weights_agree = steps % self._every_steps == 0
        if not self._weights_agree:
            return
        mean = self._mean()
        if self._velocity is not None:
            delta = self._anchor - mean
            self._velocity.mul_(self._momentum).add_(delta)
            self._anchor.sub_(delta.add_(self._velocity, alpha=self._momentum), alpha=self._rate)
        else:
            self._anchor.lerp_(mean, self._rate)  # exactly the mean at rate 1
        torch._foreach_copy_(self._trained, self._split(self._anchor))
        self._weights.refresh()

    def _evaluated(self) -> list[Tensor] | None:
        return None if self._weights_agree else self._split(self._mean())

    def state(self, names: Mapping[Tensor, str], rank_state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return `rank_state` under this rank's name, and the state that ranks share.

        That is the weights after the last outer step, `model.*`, and the velocity, `outer.*`.
        """
        rank = distributed.get_rank()
        state = {f"rank.{rank}.{name}": tensor for name, tensor in rank_state.items()}
        anchors = self._tensors.by_name(names, self._split(self._anchor))
        state |= {f"model.{name}": tensor for name, tensor in anchors.items()}
        if self._velocity is not None:
            velocities = self._tensors.by_name(names, self._split(self._velocity))
            state |= {f"outer.{name}": tensor for name, tensor in velocities.items()}
        return state

    def _mean(self) -> Tensor:
        """Return the mean of the ranks' weights, flat. Collective."""
        flat = torch.cat(self._trained)
        with in_phase(WAIT):
            self._exchange.sum(flat)()
        return flat.div_(distributed.get_world_size())

    def _split(self, flat: Tensor) -> list[Tensor]:
        """Split a flat tensor into parts that match the weights."""
        return list(flat.split([weight.numel() for weight in self._trained]))
