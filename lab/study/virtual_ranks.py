"""Simulate R data-parallel ranks in one process: compute each rank's gradient, clip it as the rank would, and sum.

Clipping before the reduction acts on the gradients of single ranks, so its effect depends on the number of ranks. A
study of 64 ranks doesn't need 64 processes: torch.func computes the gradient of each share of the global batch, and
each share is clipped by its own norm.

Shapes: R ranks, whose shares differ only in their words, as in language.py; lengths and weights are the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from bertbench.config.optimizer import ClipMode
from bertbench.gradients.buckets import backward_order, bucket_table
from bertbench.gradients.clip import contribution_limit, gradient_norm, make_clip
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart
from bertbench.model import loops
from bertbench.model.bert import Bert
from bertbench.model.loss import Labels, LossSums, Scores
from bertbench.training.whole_trainer import tiny_backward


class ReducedGradients(NamedTuple):
    """The results of a reduction, other than the gradients."""

    loss: Tensor
    """The loss of the global batch."""
    clipped: Tensor
    """The share of clipping decisions (one for each rank, or for each rank and bucket) that reduced a gradient."""
    coefficient: Tensor | None
    """In mode `after`, the factor that the optimizer still has to apply to the gradient."""


class VirtualRanks:
    """Reduces the gradients of R ranks with one clip mode (gradients/clip.py), without real ranks.

    The result equals that of R real ranks up to rounding; tests check this for 2 and 4. Buckets are those of a run. The
    gradients of all shares are in memory at once, which takes R times the size of the model.
    """

    def __init__(
        self,
        model: Bert,
        mode: ClipMode,
        max_norm: float,
        ranks: int,
        bucket_mb: float | None,
        bucket_exponent: float = 0.5,
    ) -> None:
        """Take a model with plain attention, because torch.func can't differentiate our own kernels.

        With B buckets, the threshold is divided by B^e, where e is `bucket_exponent`; real ranks use 1/2.
        """
        self._model = model
        self._mode = mode
        self._max_norm = max_norm
        self._ranks = ranks
        self._bucket_exponent = bucket_exponent
        self._clip = make_clip(mode, max_norm, ranks, 1)
        self._parameters = dict(model.named_parameters())
        names = {parameter: name for name, parameter in self._parameters.items()}
        order = backward_order(model, lambda: tiny_backward(self._scores, model.shape))
        self.buckets: list[list[str]] = []
        """The names of the parameters in each bucket, in the order of reduction."""
        for bucket in bucket_table(order, bucket_mb):
            self.buckets.append([names[parameter] for parameter in bucket])

    def _scores(self, batch: Batch) -> Scores:
        return self._model(batch.inputs)

    def reduce(self, shares: Sequence[LoadedPart]) -> ReducedGradients:
        """Set every parameter's `grad` as the all-reduce would; `shares` holds each rank's part of the batch."""
        if self._mode in ("none", "after"):
            self._model.zero_grad()
            summed = add_gradients(self._model, shares)
            factor, active = self._clip.reduced(gradient_norm(list(self._parameters.values())))
            return ReducedGradients(summed, active, factor)
        gradients, losses_R = self._gradients(shares)
        decisions = []
        for names, factor_R, active_R in self._factors(gradients):
            decisions.append(active_R)
            for name in names:
                self._parameters[name].grad = torch.tensordot(factor_R, gradients[name], 1)
        return ReducedGradients(losses_R.sum(), torch.cat(decisions).mean(), None)

    def _gradients(self, shares: Sequence[LoadedPart]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the gradients of all shares, by parameter [R, ...], and their losses [R]."""
        weights = {name: parameter.detach() for name, parameter in self._parameters.items()}
        part, first = shares[0]

        def loss(
            weights: dict[str, Tensor], tokens_T: Tensor, masked_at_M: Tensor,
            masked_M: Tensor, pairs_S: Tensor,
        ) -> Tensor:  # fmt: skip
            inputs = first.inputs._replace(tokens_T=tokens_T, masked_at_M=masked_at_M)
            scores = functional_call(self._model, weights, (inputs,))
            sums = LossSums.of(scores, Labels(masked_M, pairs_S))
            return sums.weighted(part.masked_lm_weight, part.next_sentence_weight)

        words = [(batch.tokens_T, batch.masked_at_M, *batch.labels) for _, batch in shares]
        tokens_RT, masked_at_RM, masked_RM, pairs_RS = map(torch.stack, zip(*words, strict=True))
        of_each_share = vmap(grad_and_value(loss), in_dims=(None, 0, 0, 0, 0))
        result: tuple[dict[str, Tensor], Tensor]
        with loops.unused():
            result = of_each_share(weights, tokens_RT, masked_at_RM, masked_RM, pairs_RS)
        return result

    def _factors(self, gradients: dict[str, Tensor]) -> list[tuple[list[str], Tensor, Tensor]]:
        """Return, for parameters that are clipped together, each share's factor and whether it is below 1: [R]."""
        pieces = [list(gradients)] if self._mode == "before" else self.buckets
        limit = contribution_limit(self._max_norm, self._ranks, len(pieces), self._bucket_exponent)
        factors = []
        for names in pieces:
            norms_PR = torch.stack([_norm_of_each_share(gradients[name]) for name in names])
            norm_R = torch.linalg.vector_norm(norms_PR, dim=0)
            factors.append((names, (limit / norm_R).clamp(max=1), (norm_R > limit).float()))
        return factors


def _norm_of_each_share(gradient: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gradient.flatten(1), dim=1)


def add_gradients(model: Bert, shares: Sequence[LoadedPart]) -> Tensor:
    """Add the gradients of shares to those of the parameters, and return the loss of the shares."""
    total = torch.zeros(())
    for part, batch in shares:
        sums = model.loss_sums(batch.inputs, batch.labels)
        loss = sums.weighted(part.masked_lm_weight, part.next_sentence_weight)
        loss.backward()
        total += loss.detach()
    return total
