"""Define the sizes of one BERT as plain numbers, so that the model doesn't depend on a configuration library."""

from dataclasses import dataclass


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
