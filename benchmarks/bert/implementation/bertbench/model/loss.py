"""Define the outputs and labels of the model's heads, and sum both cross-entropies.

Shapes: M masked tokens, S sequences, V vocabulary rows.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model import loops

IGNORED = -100
"""The label of rows that don't count."""


class Scores(NamedTuple):
    """The logits of both heads."""

    masked_lm_MV: Tensor
    next_sentence_S2: Tensor


class Labels(NamedTuple):
    """The right answers, or IGNORED."""

    masked_M: Tensor
    next_sentence_S: Tensor


class LossSums(NamedTuple):
    """The sums of both heads' cross-entropies."""

    masked_lm: Tensor
    next_sentence: Tensor

    @classmethod
    def of(cls, scores: Scores, labels: Labels) -> "LossSums":
        """Return the sums for scores; a compiled model computes them without scores (head_loss.py)."""
        return cls(
            cross_entropy_sum(scores.masked_lm_MV, labels.masked_M),
            cross_entropy_sum(scores.next_sentence_S2, labels.next_sentence_S),
        )

    def weighted(self, masked_lm_weight: float | Tensor, next_sentence_weight: float | Tensor) -> Tensor:
        """Return a part's loss: the weighted sum. The losses of all parts and ranks add up to the batch's."""
        return self.masked_lm * masked_lm_weight + self.next_sentence * next_sentence_weight


def cross_entropy_sum(logits_MV: Tensor, labels_M: Tensor) -> Tensor:
    """Return the sum over rows of -log softmax(logits)[label], in at least float32."""
    if loops.takes(logits_MV.device, logits_MV.dtype):
        total: Tensor = _CrossEntropySum.apply(logits_MV, labels_M)
        return total
    wide_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    return functional.cross_entropy(wide_MV, labels_M, ignore_index=IGNORED, reduction="sum")


class _CrossEntropySum(torch.autograd.Function):
    """Passes over the logits twice: for each row's log(sum(exp)), and for the gradient. It stores nothing else."""

    @staticmethod
    def forward(ctx: Any, logits_MV: Tensor, labels_M: Tensor) -> Tensor:
        counts_M = labels_M != IGNORED
        label_M = labels_M.clamp(min=0)
        log_sum_M = torch.empty(len(logits_MV))
        loops.run("log_sum_exp", logits_MV, log_sum_M, *logits_MV.shape)
        ctx.save_for_backward(logits_MV, log_sum_M, counts_M, label_M)
        label_logit_M = logits_MV.gather(1, label_M[:, None])[:, 0]
        return ((log_sum_M - label_logit_M) * counts_M).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        logits_MV, log_sum_M, counts_M, label_M = ctx.saved_tensors
        result_MV = torch.empty_like(logits_MV)
        scale_M = counts_M * gradient
        loops.run("cross_entropy_gradient", logits_MV, log_sum_M, scale_M, label_M, result_MV, *logits_MV.shape)
        return result_MV, None
