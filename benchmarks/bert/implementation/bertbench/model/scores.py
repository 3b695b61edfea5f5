"""What the model's heads give, and the labels that their losses read.

Shapes: M masked tokens, S sequences, V vocabulary rows.
"""

from typing import NamedTuple

import torch

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
