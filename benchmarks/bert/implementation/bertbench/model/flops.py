"""Count the floating-point operations that training BERT needs: the one place that defines which terms count.

Matrix products count, without padding: a layer's weights for each token, both products of attention for each pair of a
sequence's tokens, the masked-LM head for each masked token; the backward pass takes twice the forward's. Recomputation,
the pooler and the pair head (a 70,000th of BERT-Large's work) and other operations don't count. Follows section 5.1 of
Narayanan et al. 2021 (arXiv 2104.04473).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertbench.model.shape import BertShape


class FlopTerms(NamedTuple):
    """Floating-point operations of a training step, by the quantity they are proportional to."""

    token: float
    pair: float
    """For each pair of tokens in a sequence: n^2 pairs for n tokens."""
    masked: float

    @classmethod
    def of(cls, shape: BertShape) -> "FlopTerms":
        """Return 6 L (4 D^2 + 2 D F), 12 L D and 6 (D^2 + D V): 6 for a weight and token, two of them forward."""
        width = shape.hidden_size
        return cls(
            token=6.0 * shape.layers * (4 * width**2 + 2 * width * shape.feed_forward_size),
            pair=12.0 * shape.layers * width,
            masked=6.0 * (width**2 + width * shape.vocab_size),
        )


def training_flops(shape: BertShape, lengths_S: NDArray[np.integer], masked: float) -> float:
    """Return the operations of one step on sequences of these lengths with `masked` masked tokens in all."""
    terms, lengths = FlopTerms.of(shape), lengths_S.astype(np.float64)
    return float(terms.token * lengths.sum() + terms.pair * np.square(lengths).sum() + terms.masked * masked)
