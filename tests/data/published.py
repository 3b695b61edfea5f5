"""An independent writer of every published layout, against which readers are tested."""

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.protobuf import embedded, masked_crc, varint
from tests.tiny import Sample

VOCAB_SIZE = 53
WIDTH, PREDICTIONS = 11, 3  # of padded rows; MLPerf's are 512 and 76
# lengths 5, 7, 4 with 1, 2, 1 masked tokens
SAMPLES = [
    Sample([1, 9, 2, 8, 2], [0, 0, 0, 1, 1], [3], [30], 1),
    Sample([1, 3, 7, 2, 6, 3, 2], [0, 0, 0, 0, 1, 1, 1], [1, 5], [10, 50], 0),
    Sample([1, 2, 3, 2], [0, 0, 1, 1], [2], [20], 1),
]
Fields = dict[str, Any]
"""Arrays, or lists of arrays where rows have lengths of their own."""


def fixed_fields(samples: Sequence[Sample] = SAMPLES) -> Fields:
    def padded(name: str, width: int, dtype: str) -> np.ndarray:
        rows = [getattr(sample, name) for sample in samples]
        return np.array([row + [0] * (width - len(row)) for row in rows], dtype)

    return {
        "input_ids": padded("input_ids", WIDTH, "i2"),
        "input_mask": np.array([np.arange(WIDTH) < len(sample.input_ids) for sample in samples], "i1"),
        "segment_ids": padded("segment_ids", WIDTH, "i1"),
        "masked_lm_positions": padded("masked_lm_positions", PREDICTIONS, "i2"),
        "masked_lm_ids": padded("masked_lm_ids", PREDICTIONS, "i2"),
        "next_sentence_labels": np.array([sample.next_sentence_label for sample in samples], "i1"),
    }


def varlength_fields(samples: Sequence[Sample] = SAMPLES) -> Fields:
    types = {"input_ids": "i2", "segment_ids": "i1", "masked_lm_positions": "i2", "masked_lm_ids": "i2"}
    rows = {name: [np.array(getattr(sample, name), kind) for sample in samples] for name, kind in types.items()}
    return {**rows, "next_sentence_labels": np.array([sample.next_sentence_label for sample in samples], "i1")}


def packed_fields() -> Fields:
    """Two rows: the first and the second of SAMPLES (the second begins at place 5), then the third."""
    rows = {
        "input_ids": ([1, 9, 2, 8, 2, 1, 3, 7, 2, 6, 3, 2], [1, 2, 3, 2]),
        "segment_ids": ([0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1]),
        "masked_lm_positions": ([3, 5 + 1, 5 + 5], [2]),
        "masked_lm_ids": ([30, 10, 50], [20]),
        "packed_input_len": ([5, 7], [4]),
        "packed_masked_lm_len": ([1, 2], [1]),
        "next_sentence_labels": ([1, 0], [1]),
    }
    types = {"segment_ids": "i1", "next_sentence_labels": "i1"}
    return {name: [np.array(row, types.get(name, "i2")) for row in both] for name, both in rows.items()}


def write_hdf5(path: Path, fields: Fields, compression: str | None = None) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in fields.items():
            if isinstance(values, list):
                stored = file.create_dataset(name, (len(values),), h5py.vlen_dtype(values[0].dtype))
                for row, value in enumerate(values):
                    stored[row] = value
            else:
                file.create_dataset(name, data=values, compression=compression)
    return path


def features(sample: Sample) -> dict[str, list[int] | list[float]]:
    """MLPerf's seven features, padded."""
    fields = fixed_fields([sample])
    weights = [float(position != 0) for position in fields["masked_lm_positions"][0]]
    return {name: values.reshape(-1).tolist() for name, values in fields.items()} | {"masked_lm_weights": weights}


def example(content: dict[str, list[int] | list[float]], packed: bool = True) -> bytes:
    """A tf.train.Example; values are packed in one field, as TensorFlow writes them, or in a field each."""
    entries = b""
    for name, values in content.items():
        is_float = any(isinstance(value, float) for value in values)
        encoded = [struct.pack("<f", value) if is_float else varint(int(value)) for value in values]
        listed = (
            embedded(1, b"".join(encoded))
            if packed
            else b"".join(varint(1 << 3 | (5 if is_float else 0)) + value for value in encoded)
        )
        entries += embedded(1, embedded(1, name.encode()) + embedded(2, embedded(2 if is_float else 3, listed)))
    return embedded(1, entries)


def framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + masked_crc(length) + record + masked_crc(record)


def write_tfrecord(path: Path, records: Sequence[bytes], compressed: bool = False) -> Path:
    content = b"".join(map(framed, records))
    path.write_bytes(gzip.compress(content) if compressed else content)
    return path
