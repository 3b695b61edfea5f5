"""Define the sizes of BERT that benchmarks measure, all with BERT's vocabulary of 30,522 and 512 positions."""

from bertbench.model.shape import BertShape

_VOCABULARY = 30_522


def _shape(layers: int, hidden: int, heads: int) -> BertShape:
    return BertShape(_VOCABULARY, hidden, layers, heads, 4 * hidden)


SHAPES = {
    "small": _shape(4, 256, 4),
    "medium": _shape(8, 512, 8),
    "base": _shape(12, 768, 12),
    "large": _shape(24, 1024, 16),
}
