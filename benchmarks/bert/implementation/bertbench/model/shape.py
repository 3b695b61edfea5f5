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
