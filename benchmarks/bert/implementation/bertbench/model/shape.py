"""Define the sizes of one BERT as plain numbers, and count the floating-point operations that training it needs.

The sizes need no configuration library. This is the one place that defines which operations count. Matrix products
count, without padding: the weights of a layer for each token, both products of attention for each pair of tokens in a
sequence, and the masked-LM head for each masked token. The backward pass counts twice as much as the forward pass. The
pooler, the pair head (a 70,000th of BERT-Large's work) and other operations don't count; recomputation is counted
separately. This follows section 5.1 of Narayanan et al. 2021 (arXiv 2104.04473); docs/performance.md has the formula.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BertShape:
    """Sizes and rates; the defaults are MLPerf's BERT-Large."""

    vocab_size: int = 30_528
    """Rows of the embedding matrix: the vocabulary, padded to a multiple of 8."""
    hidden_size: int = 1024
    layers: int = 24
    attention_heads: int = 16
    feed_forward_size: int = 4096
    max_positions: int = 512
    token_types: int = 2
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02


_VOCABULARY = 30_522


def _of_size(layers: int, hidden: int, heads: int) -> BertShape:
    return BertShape(_VOCABULARY, hidden, layers, heads, 4 * hidden)


SHAPES = {
    "small": _of_size(4, 256, 4),
    "medium": _of_size(8, 512, 8),
    "base": _of_size(12, 768, 12),
    "large": _of_size(24, 1024, 16),
}
"""The sizes that benchmarks measure, all with BERT's vocabulary and 512 positions."""


class BatchCounts(NamedTuple):
    """The quantities to which a batch's operations are proportional; filler and padding don't count."""

    tokens: int
    pairs: int
    """Pairs of tokens in the same sequence: n^2 for a sequence of n tokens."""
    masked: int
    """Masked tokens, which the masked-LM head reads."""

    @classmethod
    def of_sequences(cls, lengths_S: NDArray[np.integer], masked: int) -> "BatchCounts":
        """Return the counts of sequences of these lengths, with `masked` masked tokens in all."""
        wide_S = lengths_S.astype(np.int64)
        return cls(int(wide_S.sum()), int(np.square(wide_S).sum()), masked)


class FlopTerms(NamedTuple):
    """The floating-point operations of a training step, by the quantity to which they are proportional."""

    token: float
    pair: float
    """For each pair of tokens in a sequence: n^2 pairs for n tokens."""
    masked: float

    @classmethod
    def of(cls, shape: BertShape) -> "FlopTerms":
        """Return 6 L (4 D^2 + 2 D F), 12 L D and 6 (D^2 + D V): 2 forward and 4 backward for each weight and token."""
        width = shape.hidden_size
        return cls(
            token=6.0 * shape.layers * (4 * width**2 + 2 * width * shape.feed_forward_size),
            pair=12.0 * shape.layers * width,
            masked=6.0 * (width**2 + width * shape.vocab_size),
        )

    def training(self, counts: BatchCounts) -> float:
        """Return the operations of a step on a batch."""
        return self.token * counts.tokens + self.pair * counts.pairs + self.masked * counts.masked

    def recomputation(self, counts: BatchCounts) -> float:
        """Return the operations of a second forward pass of the layers, needed if they keep only their inputs."""
        return (self.token * counts.tokens + self.pair * counts.pairs) / 3


def training_flops(shape: BertShape, lengths_S: NDArray[np.integer], masked: float) -> float:
    """Return the operations of one step on sequences of these lengths with `masked` masked tokens in all."""
    terms = FlopTerms.of(shape)
    wide_S = lengths_S.astype(np.float64)
    return float(terms.token * wide_S.sum() + terms.pair * np.square(wide_S).sum() + terms.masked * masked)
