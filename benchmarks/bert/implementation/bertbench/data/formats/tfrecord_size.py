"""Compute the bytes of the TFRecords that MLPerf's reference makes: an Example of seven features a sample, padded.

The reference is mlcommons/training, retired_benchmarks/bert/cleanup_scripts/create_pretraining_data.py;
formats/example.py explains the messages. Shapes: N samples of a block.
"""

from typing import Any

import numpy as np

from bertbench.data.formats.rows import Rows
from bertbench.data.store.columns import MAX_LENGTH, Columns, Integers

MAX_PREDICTIONS = 76  # MLPerf's max_predictions_per_seq
_FRAME_BYTES = 16  # length 8, its checksum 4, the record's checksum 4
_FIXED = {  # bytes of the padded values: small numbers take one, a float four
    "input_mask": MAX_LENGTH,
    "segment_ids": MAX_LENGTH,
    "masked_lm_weights": 4 * MAX_PREDICTIONS,
    "next_sentence_labels": 1,
}


def record_bytes(block: Columns) -> Integers:
    """Return the bytes of each sample in a file, framing included: [N]."""
    features_N = np.full(len(block), sum(_entry(name, size) for name, size in _FIXED.items()))
    for name, counts, width in (
        ("input_ids", block.lengths, MAX_LENGTH),
        ("masked_lm_positions", block.masked, MAX_PREDICTIONS),
        ("masked_lm_ids", block.masked, MAX_PREDICTIONS),
    ):
        features_N += _entry(name, width + Rows(_varint(getattr(block, name)) - 1, counts).sums())
    return _field(features_N) + _FRAME_BYTES


def _entry(name: str, values: Any) -> Any:
    """Return the bytes of a feature's map entry {1: name, 2: Feature {list {values}}} from those of its values."""
    return _field(_field(len(name)) + _field(_field(_field(values))))


def _field(size: Any) -> Any:
    """Return the bytes of a field of `size` bytes with its tag and its length."""
    return 1 + _varint(size) + size


def _varint(value: Any) -> Any:
    """Return the bytes of a number below 2^21."""
    return 1 + np.greater_equal(value, 1 << 7).astype(np.int64) + np.greater_equal(value, 1 << 14)
