"""The model's heads: what they give, the labels, and the sum of both cross-entropies.

Shapes: M masked tokens, S sequences, V vocabulary rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100
"""The label of rows that don't count."""


class Scores(NamedTuple):
    """Logits of both heads."""

    masked_lm_MV: Tensor
    next_sentence_S2: Tensor


class Labels(NamedTuple):
    """Right answers, or IGNORED."""

    masked_M: Tensor
    next_sentence_S: Tensor


class LossSums(NamedTuple):
    """Sums of both heads' cross-entropies, from a model that doesn't return the scores."""

    masked_lm: Tensor
    next_sentence: Tensor


def cross_entropy_sum(logits_MV: Tensor, labels_M: Tensor) -> Tensor:
    """Return the sum over rows of -log softmax(logits)[label], in at least float32."""
    wide_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    return functional.cross_entropy(wide_MV, labels_M, ignore_index=IGNORED, reduction="sum")


def weighted_loss(
    scores: Scores | LossSums,
    masked_labels_M: Tensor,
    next_sentence_S: Tensor,
    masked_lm_weight: float | Tensor,
    next_sentence_weight: float | Tensor,
) -> Tensor:
    """Return the weighted sum of both heads' cross-entropies; parts of all ranks add up to the batch's loss."""
    if not isinstance(scores, LossSums):
        scores = LossSums(
            cross_entropy_sum(scores.masked_lm_MV, masked_labels_M),
            cross_entropy_sum(scores.next_sentence_S2, next_sentence_S),
        )
    return scores.masked_lm * masked_lm_weight + scores.next_sentence * next_sentence_weight
