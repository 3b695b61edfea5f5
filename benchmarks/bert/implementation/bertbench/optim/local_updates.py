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
from torch import nn

from bertbench.optim.communication import SumTensor
from bertbench.optim.options import OuterOptions
from bertbench.optim.state import logical


class LocalUpdates:
    """The weights of a model on one of `ranks` ranks, which agree only after every `options.every_steps` steps.

    `took` and `show_mean` are collective: both may sum weights over the ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        fused: Mapping[torch.Tensor, int],
        ranks: int,
        options: OuterOptions,
        sum_tensor: SumTensor,
    ) -> None:
        """Take `fused`, the number of logical tensors of each parameter that holds several."""
        self._weights = [parameter.detach() for parameter in model.parameters() if parameter.requires_grad]
        self._names = [
            (name, fused.get(parameter, 1)) for name, parameter in model.named_parameters() if parameter.requires_grad
        ]
        self._ranks, self._options, self._sum = ranks, options, sum_tensor
        self._anchor = self._flat()
        self._velocity = torch.zeros_like(self._anchor) if options.momentum else None
        self._agreed = True
        self._own: torch.Tensor | None = None
        """This rank's weights while the model holds the mean of all."""

    def reset(self) -> None:
        """Restart from the model's weights, which must be equal on all ranks; call it after a warm-up."""
        self._anchor.copy_(self._flat())
        if self._velocity is not None:
            self._velocity.zero_()
        self._agreed, self._own = True, None

    def took(self, steps: int) -> None:
        """Take the outer step if one is due after `steps` steps of every rank."""
        self._agreed = steps % self._options.every_steps == 0
        if not self._agreed:
            return
        mean = self._mean()
        rate, momentum = self._options.learning_rate, self._options.momentum
        if self._velocity is not None:
            delta = self._anchor - mean
            self._velocity.mul_(momentum).add_(delta)
            self._anchor.sub_(delta.add_(self._velocity, alpha=momentum), alpha=rate)
        else:
            self._anchor.lerp_(mean, rate)  # exactly the mean at rate 1
        self._put(self._anchor)

    def show_mean(self) -> None:
        """Put the mean of the ranks' weights into the model for an evaluation, until `put_back`."""
        if not self._agreed and self._own is None:
            self._own = self._flat()
            self._put(self._mean())

    def put_back(self) -> None:
        """Put this rank's own weights back into the model."""
        own, self._own = self._own, None
        if own is not None:
            self._put(own)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the state that ranks share: `model.*`, weights after the last outer step, `outer.*`, its velocity."""
        return {
            f"{part}.{name}": tensor
            for part, flat in (("model", self._anchor), ("outer", self._velocity))
            if flat is not None
            for name, tensor in self._named(flat).items()
        }

    def resume(self, steps: int) -> None:
        """Continue as after `steps` steps, once the state is restored."""
        self._agreed, self._own = steps % self._options.every_steps == 0, None

    def _mean(self) -> torch.Tensor:
        flat = self._flat()
        self._sum(flat).wait()
        return flat.div_(self._ranks)

    def _flat(self) -> torch.Tensor:
        return torch.cat([weight.reshape(-1) for weight in self._weights])

    def _put(self, flat: torch.Tensor) -> None:
        torch._foreach_copy_(self._weights, self._views(flat))

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        pieces = flat.split([weight.numel() for weight in self._weights])
        return [piece.view(weight.shape) for piece, weight in zip(pieces, self._weights, strict=True)]

    def _named(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        several = [
            logical(name, view, parts) for (name, parts), view in zip(self._names, self._views(flat), strict=True)
        ]
        return {name: tensor for one in several for name, tensor in one.items()}
