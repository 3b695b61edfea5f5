"""Model the cost of a sequence: a linear term for matrix products, a quadratic one for attention.

model/shape.py gives the operations per token, per pair of tokens, and per token that the vocabulary's head reads. A
sequence of n tokens costs:

    BERT      token n + masked 0.1493 n + 2 pair n^2      the head reads masked tokens only
    causal    token n + masked n        + 2 pair n^2 / 2  the head reads all tokens; attention reads earlier tokens only

A causal token i attends to i tokens, so n tokens have n (n + 1) / 2 pairs. The cost counts n^2 / 2: the other n / 2
are 0.02 % of BERT-Large's linear term. The 2 is attention's slowdown.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bertbench.data.store.columns import MAX_LENGTH, Floats
from bertbench.model.shape import BertShape, FlopTerms

MASKED_SHARE = 0.1493  # of the tokens: 38.2 of 255.8 in the Wikipedia samples (15 %, at most 76 per sample)
_ATTENTION_SLOWDOWN = 2.0  # attention reaches about half the rate of dense matrix products


@dataclass(frozen=True)
class CostModel:
    """Cost of a sequence of n tokens, linear * n + quadratic * n^2, in any unit."""

    linear: float
    quadratic: float

    @classmethod
    def of_shape(cls, shape: BertShape, causal: bool = False) -> "CostModel":
        """Return the floating-point operations of a training step, with attention's counted twice.

        If `causal`, the model is a causal language model of this shape instead of BERT.
        """
        terms = FlopTerms.of(shape)
        share_read = 1.0 if causal else MASKED_SHARE
        share_attended = 0.5 if causal else 1.0
        return cls(
            linear=terms.token + share_read * terms.masked,
            quadratic=share_attended * _ATTENTION_SLOWDOWN * terms.pair,
        )

    @cached_property
    def of_length(self) -> Floats:
        """Return the cost by length: [MAX_LENGTH + 1]."""
        lengths = np.arange(MAX_LENGTH + 1, dtype=np.float64)
        return self.linear * lengths + self.quadratic * lengths**2


BERT_LARGE = CostModel(1840.87e6, 0.58982e6)
"""The costs of BERT-Large with a vocabulary of 30,522: the rounded result of `of_shape`."""
CAUSAL_LARGE = CostModel.of_shape(BertShape(vocab_size=30_522), causal=True)
"""A causal language model of BERT-Large's shape."""
