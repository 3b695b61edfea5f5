"""Make random samples of Wikipedia's lengths, for benchmarks that need no text."""

import numpy as np

from bertbench.balance.lengths import draw_lengths, predictions
from bertbench.data.store.columns import Columns, spans

VOCABULARY = 30_522
_SHORTEST = 5


def wikipedia_like(samples: int, seed: int) -> Columns:
    """Return random tokens in samples of Wikipedia's lengths, 15 % masked."""
    return samples_of(draw_lengths(samples, seed), seed)


def samples_of(lengths: np.ndarray, seed: int, vocabulary: int = VOCABULARY) -> Columns:
    """Return random tokens in samples of these lengths, at least 5 each, 15 % masked."""
    random, samples = np.random.default_rng(seed), len(lengths)
    lengths = np.maximum(lengths, _SHORTEST)
    masked = predictions(lengths)
    within = spans(np.zeros(samples, np.int64), masked)
    return Columns(
        lengths=lengths,
        masked=masked,
        input_ids=random.integers(5, vocabulary, lengths.sum()).astype(np.int16),
        segment_ids=(spans(np.zeros(samples, np.int64), lengths) >= np.repeat(lengths // 2, lengths)).astype(np.int8),
        masked_lm_positions=(within * np.repeat(lengths, masked) // np.repeat(masked, masked)).astype(np.int16),
        masked_lm_ids=random.integers(5, vocabulary, masked.sum()).astype(np.int16),
        next_sentence_labels=random.integers(0, 2, samples).astype(np.int8),
    )
