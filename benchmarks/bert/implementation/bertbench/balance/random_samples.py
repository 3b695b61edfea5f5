"""Draw random samples, or their lengths alone, from a histogram of lengths: for measurements that need no text."""

import json
from pathlib import Path

import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.system_faults import unreadable
from bertbench.data.store.columns import Columns, Floats, Integers, places_of_spans

WIKIPEDIA = Path(__file__).with_name("wikipedia_lengths.json")
_LENGTHS_PER_PREDICTION = 0.15
_MOST_PREDICTIONS = 76
VOCABULARY = 30_522
_SHORTEST = 5


def length_counts(path: Path) -> Floats:
    """Read the number of sequences of length i + 1, for every i, from a JSON file with `counts`.

    Raises DataError if the file isn't such a histogram.
    """
    try:
        counts = np.array(json.loads(path.read_text(encoding="utf-8-sig"))["counts"], dtype=np.float64)
        if counts.ndim != 1 or (counts < 0).any() or not counts.sum() > 0:
            raise ValueError("counts must be numbers of sequences, not all 0")
    except OSError as error:
        raise DataError(unreadable(path, error, "give a length histogram")) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: is not a length histogram ({error}); expected JSON with `counts`, entry i for length i + 1"
        ) from error
    return counts


def length_shares(path: Path = WIKIPEDIA) -> Floats:
    """Return the share of sequences of length i + 1, for every i. Raises DataError as `length_counts` does."""
    counts = length_counts(path)
    return np.asarray(counts / counts.sum())


def draw_lengths(count: int, seed: int, shares: Floats | None = None) -> Integers:
    """Draw the lengths of `count` sequences from the shares (default: Wikipedia's)."""
    known = length_shares() if shares is None else shares
    return np.random.default_rng(seed).choice(len(known), size=count, p=known) + 1


def predictions(lengths: Integers) -> Integers:
    """Return the number of masked tokens in sequences of these lengths: 15 %, at least 1, at most 76."""
    return np.clip(np.rint(_LENGTHS_PER_PREDICTION * lengths), 1, _MOST_PREDICTIONS).astype(np.int64)


def samples_of_lengths(lengths: np.ndarray, seed: int, vocabulary: int = VOCABULARY) -> Columns:
    """Return random tokens in samples of these lengths, at least 5 each, 15 % masked."""
    random = np.random.default_rng(seed)
    samples = len(lengths)
    lengths = np.maximum(lengths, _SHORTEST)
    masked = predictions(lengths)
    within = places_of_spans(np.zeros(samples, np.int64), masked)
    return Columns(
        lengths=lengths,
        masked=masked,
        input_ids=random.integers(5, vocabulary, lengths.sum()).astype(np.int16),
        segment_ids=(places_of_spans(np.zeros(samples, np.int64), lengths) >= np.repeat(lengths // 2, lengths)).astype(
            np.int8
        ),
        masked_lm_positions=(within * np.repeat(lengths, masked) // np.repeat(masked, masked)).astype(np.int16),
        masked_lm_ids=random.integers(5, vocabulary, masked.sum()).astype(np.int16),
        next_sentence_labels=random.integers(0, 2, samples).astype(np.int8),
    )
