"""The model's heads: what they give, the labels, and the sum of both cross-entropies.

Shapes: M masked tokens, S sequences, V vocabulary rows.
"""

from typing import NamedTuple

import torch
from torch.nn import functional

IGNORED = -100
"""The label of rows that don't count."""


class Scores(NamedTuple):
    """Logits of both heads."""

    masked_lm_MV: torch.Tensor
    next_sentence_S2: torch.Tensor


class Labels(NamedTuple):
    """Right answers, or IGNORED."""

    masked_M: torch.Tensor
    next_sentence_S: torch.Tensor


class LossSums(NamedTuple):
    """Sums of both heads' cross-entropies, from a model that doesn't return the scores."""

    masked_lm: torch.Tensor
    next_sentence: torch.Tensor


def cross_entropy_sum(logits_MV: torch.Tensor, labels_M: torch.Tensor) -> torch.Tensor:
    """Return the sum over rows of -log softmax(logits)[label], in at least float32."""
    wide_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    return functional.cross_entropy(wide_MV, labels_M, ignore_index=IGNORED, reduction="sum")


def weighted_loss(
    scores: Scores | LossSums,
    masked_labels_M: torch.Tensor,
    next_sentence_S: torch.Tensor,
    masked_lm_weight: float | torch.Tensor,
    next_sentence_weight: float | torch.Tensor,
) -> torch.Tensor:
    """Return the weighted sum of both heads' cross-entropies; parts of all ranks add up to the batch's loss."""
    if not isinstance(scores, LossSums):
        scores = LossSums(
            cross_entropy_sum(scores.masked_lm_MV, masked_labels_M),
            cross_entropy_sum(scores.next_sentence_S2, next_sentence_S),
        )
    return scores.masked_lm * masked_lm_weight + scores.next_sentence * next_sentence_weight
