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
from bertbench.data.formats.hdf5_write import MAX_PREDICTIONS
from bertbench.data.store.columns import Array, Columns
from bertbench.data.store.index import MAX_LENGTH

_WIDTHS = {
    "input_ids": MAX_LENGTH,
    "input_mask": MAX_LENGTH,
    "segment_ids": MAX_LENGTH,
    "masked_lm_positions": MAX_PREDICTIONS,
    "masked_lm_ids": MAX_PREDICTIONS,
    "masked_lm_weights": MAX_PREDICTIONS,
    "next_sentence_labels": 1,
}
"""The features in the reference's order, with their number of values after padding with 0."""
_WEIGHTS = "masked_lm_weights"
_FLOATS, _INTEGERS = 2, 3  # field numbers of Feature's lists
_FRAME_BYTES = 16  # length 8, its checksum 4, the record's checksum 4
_ONE = struct.pack("<f", 1.0)


def write_tfrecord(path: Path, samples: int, blocks: Iterable[Columns]) -> int:
    """Write one record per sample; return the number of records."""
    with path.open("wb") as stream:
        for block in blocks:
            stream.write(b"".join(map(_framed, records(block))))
    return samples


def records(block: Columns) -> Iterator[bytes]:
    """Yield each sample as a serialized tf.train.Example. Ids, positions and labels must not be negative."""
    lengths, masked = block.lengths.tolist(), block.masked.tolist()
    ones = np.ones(len(block), np.int64)
    columns = {
        "input_ids": _varints(block.input_ids, block.lengths),
        "input_mask": (b"\1" * length for length in lengths),
        "segment_ids": _varints(block.segment_ids, block.lengths),
        "masked_lm_positions": _varints(block.masked_lm_positions, block.masked),
        "masked_lm_ids": _varints(block.masked_lm_ids, block.masked),
        _WEIGHTS: (_ONE * count for count in masked),
        "next_sentence_labels": _varints(block.next_sentence_labels, ones),
    }
    counts = {name: lengths if width == MAX_LENGTH else masked for name, width in _WIDTHS.items()}
    counts["next_sentence_labels"] = ones.tolist()
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        parts = []
        for name, value in zip(columns, values, strict=True):
            padding = (_WIDTHS[name] - counts[name][row]) * (len(_ONE) if name == _WEIGHTS else 1)
            parts += [_entry_start(name, len(value) + padding), value, bytes(padding)]
        features = b"".join(parts)
        yield b"\x0a" + _varint(len(features)) + features


def record_bytes(block: Columns) -> NDArray[np.int64]:
    """Compute the bytes of each sample in a file, framing included, without writing it: [N]."""
    ones = np.ones(len(block), np.int64)
    longer = {
        "input_ids": _bytes_beyond_one(block.input_ids, block.lengths),
        "segment_ids": _bytes_beyond_one(block.segment_ids, block.lengths),
        "masked_lm_positions": _bytes_beyond_one(block.masked_lm_positions, block.masked),
        "masked_lm_ids": _bytes_beyond_one(block.masked_lm_ids, block.masked),
        "next_sentence_labels": _bytes_beyond_one(block.next_sentence_labels, ones),
    }
    features = np.zeros(len(block), np.int64)
    for name, width in _WIDTHS.items():
        values = width * (len(_ONE) if name == _WEIGHTS else 1) + longer.get(name, 0 * ones)
        feature = _field_bytes(_field_bytes(values))  # Feature {3: Int64List {1: values}}
        features += _field_bytes(2 + len(name) + _field_bytes(feature))  # a map's entry {1: name, 2: Feature}
    return _field_bytes(features) + _FRAME_BYTES


@cache
def _entry_start(name: str, size: int) -> bytes:
    """Return the part of a feature's map entry before its values, which take `size` bytes."""
    of_list = b"\x0a" + _varint(size)
    kind = _FLOATS if name == _WEIGHTS else _INTEGERS
    of_feature = bytes([kind << 3 | 2]) + _varint(len(of_list) + size) + of_list
    of_entry = b"\x0a" + _varint(len(name)) + name.encode() + b"\x12" + _varint(len(of_feature) + size) + of_feature
    return b"\x0a" + _varint(len(of_entry) + size) + of_entry


def _framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return b"".join(
        (length, struct.pack("<I", masked_crc32c(length)), record, struct.pack("<I", masked_crc32c(record)))
    )


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varints(values: Array, counts: Array) -> Iterator[bytes]:
    """Yield each row's values as consecutive varints; 16-bit values take at most 3 bytes."""
    values = values.astype(np.int32)
    sizes = _varint_sizes(values)
    starts = np.cumsum(sizes) - sizes
    encoded = np.zeros(int(sizes.sum()), np.uint8)
    for place in range(3):
        long_enough = np.flatnonzero(sizes > place)
        more = (sizes[long_enough] > place + 1) * 0x80
        encoded[starts[long_enough] + place] = values[long_enough] >> 7 * place & 0x7F | more
    data = encoded.tobytes()
    ends = np.cumsum(_sums(sizes, counts)).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        yield data[start:end]


def _varint_sizes(values: NDArray[Any]) -> NDArray[np.int64]:
    return 1 + (values >= 1 << 7).astype(np.int64) + (values >= 1 << 14)


def _bytes_beyond_one(values: Array, counts: Array) -> NDArray[np.int64]:
    """Return the bytes of each row's varints beyond one per value: [N]."""
    return _sums(_varint_sizes(values) - 1, counts)


def _sums(values: NDArray[np.int64], counts: Array) -> NDArray[np.int64]:
    """Return the sum of each row of `counts` values: [N]."""
    before = np.concatenate(([0], np.cumsum(values)))
    ends = np.cumsum(counts.astype(np.int64))
    return before[ends] - before[ends - counts]


def _field_bytes(size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes of a length-delimited field: a tag of one byte, the length, `size` bytes of content."""
    return 1 + _varint_sizes(size) + size
