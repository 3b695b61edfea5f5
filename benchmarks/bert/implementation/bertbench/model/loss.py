"""Sum both heads' cross-entropies.

Shapes: M masked tokens, S sequences, V vocabulary rows.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model.scores import IGNORED, LossSums, Scores

_ROWS = 32  # rows of float32 scores over BERT's vocabulary, 4 MB: they stay in cache between passes

Weight = float | torch.Tensor


def cross_entropy_sum(logits_MV: torch.Tensor, labels_M: torch.Tensor, weight: Weight = 1.0) -> torch.Tensor:
    """Return the weighted sum over rows of -log softmax(logits)[label], in at least float32; overwrites logits on CPU.

    The scores of the masked tokens are the largest tensor of a step. On CPU, training overwrites them with their
    gradient, a block of rows at a time; torch makes three more tensors of that size, whose pages the system must clear.
    The weight is multiplied into the block while it is in cache, so the backward pass reads no score again.
    """
    if logits_MV.device.type != "cpu" or not logits_MV.requires_grad or torch.compiler.is_compiling():
        return plain_cross_entropy_sum(logits_MV, labels_M, weight)
    total: torch.Tensor = _InPlace.apply(logits_MV, labels_M, weight)
    return total


def plain_cross_entropy_sum(logits_MV: torch.Tensor, labels_M: torch.Tensor, weight: Weight = 1.0) -> torch.Tensor:
    """Compute `cross_entropy_sum` by torch's operation, which torch.func can transform."""
    return functional.cross_entropy(logits_MV.float(), labels_M, ignore_index=IGNORED, reduction="sum") * weight


def weighted_loss(
    scores: Scores | LossSums,
    masked_labels_M: torch.Tensor,
    next_sentence_S: torch.Tensor,
    masked_lm_weight: Weight,
    next_sentence_weight: Weight,
) -> torch.Tensor:
    """Return the weighted sum of both heads' cross-entropies; parts of all ranks add up to the batch's loss."""
    if isinstance(scores, LossSums):
        return scores.masked_lm * masked_lm_weight + scores.next_sentence * next_sentence_weight
    masked_lm = cross_entropy_sum(scores.masked_lm_MV, masked_labels_M, masked_lm_weight)
    return masked_lm + cross_entropy_sum(scores.next_sentence_S2, next_sentence_S, next_sentence_weight)


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_MV: torch.Tensor, labels_M: torch.Tensor, weight: Weight) -> torch.Tensor:
        # Overwriting behind autograd's back is safe: a linear layer never reads its output again.
        scores_MV = logits_MV.detach()
        wide = torch.promote_types(scores_MV.dtype, torch.float32)
        total = torch.zeros((), dtype=wide)
        for scores_RV, labels_R in zip(scores_MV.split(_ROWS), labels_M.split(_ROWS), strict=True):
            counts_R1 = (labels_R != IGNORED).to(wide)[:, None]
            weights_R1 = counts_R1 * weight
            label_R1 = labels_R.clamp(min=0)[:, None]
            logarithms_RV = torch.log_softmax(scores_RV, -1, dtype=wide)
            total -= (logarithms_RV.gather(1, label_R1) * counts_R1).sum()
            gradient_RV = logarithms_RV.exp_()
            gradient_RV.scatter_add_(1, label_R1, -counts_R1)
            torch.mul(gradient_RV, weights_R1, out=scores_RV)
        ctx.save_for_backward(scores_MV)
        return total * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient_MV,) = ctx.saved_tensors
        # it differs from 1 only with a loss scale; a dry run's tensors hold no numbers
        if type(gradient) is not torch.Tensor or gradient.numpy() != 1:
            gradient_MV.mul_(gradient)
        return gradient_MV, None, None
