"""Model the cost of a sequence: a linear term for matrix products, a quadratic one for attention."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bertbench.data.store.index import MAX_LENGTH
from bertbench.model.flops import FlopTerms
from bertbench.model.shape import BertShape

MASKED_SHARE = 0.1493  # of the tokens: 38.2 of 255.8 in the Wikipedia samples (15 %, at most 76 a sample)
_ATTENTION_SLOWDOWN = 2.0  # attention reaches about half the rate of dense matrix products


@dataclass(frozen=True)
class CostModel:
    """Cost of a sequence of n tokens, linear * n + quadratic * n^2, in any unit."""

    linear: float
    quadratic: float

    @classmethod
    def of_shape(cls, shape: BertShape) -> "CostModel":
        """Return the floating-point operations of a training step (model/flops.py), attention counted double."""
        terms = FlopTerms.of(shape)
        return cls(terms.token + MASKED_SHARE * terms.masked, _ATTENTION_SLOWDOWN * terms.pair)

    @cached_property
    def of_length(self) -> NDArray[np.float64]:
        """Return the cost by length: [MAX_LENGTH + 1]."""
        lengths = np.arange(MAX_LENGTH + 1, dtype=np.float64)
        return self.linear * lengths + self.quadratic * lengths**2


BERT_LARGE = CostModel(1840.87e6, 0.58982e6)
"""BERT-Large with a vocabulary of 30,522: `of_shape`, to four digits."""
