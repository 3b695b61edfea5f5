"""Write one TFRecord file as MLPerf's reference writes it: an Example of seven features a sample, padded.

The reference (mlcommons/training, retired_benchmarks/bert/cleanup_scripts/create_pretraining_data.py) serializes a
map, whose order protobuf leaves open; we keep the reference's order of insertion. A record's size doesn't depend on
the order. Shapes: N samples of a block.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertbench.common.protobuf import masked_crc32c
from bertbench.data.formats.rows import Rows
from bertbench.data.store.columns import MAX_LENGTH, Columns

MAX_PREDICTIONS = 76  # MLPerf's max_predictions_per_seq
_WEIGHTS = "masked_lm_weights"
_FLOATS, _INTEGERS = 2, 3  # field numbers of Feature's lists
_FRAME_BYTES = 16  # length 8, its checksum 4, the record's checksum 4
_ONE = struct.pack("<f", 1.0)


def _features(block: Columns) -> dict[str, tuple[Rows, int]]:
    """Return the features in the reference's order, and how many values each has after padding with 0.

    Masks and weights are ones.
    """
    ones = np.ones(len(block), np.int64)
    return {
        "input_ids": (Rows(block.input_ids, block.lengths), MAX_LENGTH),
        "input_mask": (Rows(np.ones_like(block.segment_ids), block.lengths), MAX_LENGTH),
        "segment_ids": (Rows(block.segment_ids, block.lengths), MAX_LENGTH),
        "masked_lm_positions": (Rows(block.masked_lm_positions, block.masked), MAX_PREDICTIONS),
        "masked_lm_ids": (Rows(block.masked_lm_ids, block.masked), MAX_PREDICTIONS),
        _WEIGHTS: (Rows(np.ones_like(block.masked_lm_ids), block.masked), MAX_PREDICTIONS),
        "next_sentence_labels": (Rows(block.next_sentence_labels, ones), 1),
    }


def write_tfrecord(path: Path, blocks: Iterable[Columns]) -> None:
    """Write one record per sample."""
    with path.open("wb") as stream:
        for block in blocks:
            stream.write(b"".join(map(_framed, records(block))))


def records(block: Columns) -> Iterator[bytes]:
    """Yield each sample as a serialized tf.train.Example. Ids, positions and labels must not be negative."""
    encoded = [_encoded(name, rows, width) for name, (rows, width) in _features(block).items()]
    for entries in zip(*encoded, strict=True):
        features = b"".join(entries)
        yield _field_start(1, len(features)) + features


def record_bytes(block: Columns) -> NDArray[np.int64]:
    """Compute the bytes of each sample in a file, framing included, without writing it: [N]."""
    total = np.zeros(len(block), np.int64)
    for name, (rows, width) in _features(block).items():
        if name == _WEIGHTS:
            listed = np.full(len(block), width * len(_ONE))
        else:
            listed = width + Rows(_varint_sizes(rows.values) - 1, rows.counts).sums()
        sizes, which = np.unique(listed, return_inverse=True)  # few: lengths differ by less than a kilobyte
        total += np.array([len(_entry_start(name, size)) + size for size in sizes.tolist()])[which]
    return 1 + _varint_sizes(total) + total + _FRAME_BYTES


def _encoded(name: str, rows: Rows, width: int) -> Iterator[bytes]:
    """Yield the map entry of each sample's feature, its values padded."""
    counts, zero, values = rows.counts.tolist(), bytes(1), _varints(rows)
    if name == _WEIGHTS:
        zero, values = bytes(len(_ONE)), (_ONE * count for count in counts)
    for count, value in zip(counts, values, strict=True):
        padded = value + zero * (width - count)
        yield _entry_start(name, len(padded)) + padded


@cache
def _entry_start(name: str, size: int) -> bytes:
    """Return the part of a feature's map entry {1: name, 2: Feature} before its values, which take `size` bytes."""
    of_list = _field_start(1, size)
    of_feature = _field_start(_FLOATS if name == _WEIGHTS else _INTEGERS, len(of_list) + size) + of_list
    of_name = _field_start(1, len(name)) + name.encode()
    of_entry = of_name + _field_start(2, len(of_feature) + size) + of_feature
    return _field_start(1, len(of_entry) + size) + of_entry


def _framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return b"".join(
        (length, struct.pack("<I", masked_crc32c(length)), record, struct.pack("<I", masked_crc32c(record)))
    )


def _field_start(number: int, size: int) -> bytes:
    """Return the start of a field of `size` bytes: tag and length, a varint."""
    encoded = bytearray([number << 3 | 2])
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def _varints(rows: Rows) -> Iterator[bytes]:
    """Yield each row's values as consecutive varints; 16-bit values take at most 3 bytes."""
    values = rows.values.astype(np.int32)
    sizes = _varint_sizes(values)
    starts = np.cumsum(sizes) - sizes
    encoded = np.zeros(int(sizes.sum()), np.uint8)
    for place in range(3):
        long_enough = np.flatnonzero(sizes > place)
        more = (sizes[long_enough] > place + 1) * 0x80
        encoded[starts[long_enough] + place] = values[long_enough] >> 7 * place & 0x7F | more
    data = encoded.tobytes()
    ends = np.cumsum(Rows(sizes, rows.counts).sums()).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        yield data[start:end]


def _varint_sizes(values: NDArray[Any]) -> NDArray[np.int64]:
    return 1 + (values >= 1 << 7).astype(np.int64) + (values >= 1 << 14)
