"""Read MLPerf's TFRecord files, plain or gzip, without TensorFlow.

A record is: length (8 bytes, little endian), masked CRC-32C of it (4), the bytes, masked CRC-32C of them (4);
the format's documentation is tensorflow.org's "TFRecord and tf.train.Example". formats/example.py reads the message
inside. MLPerf's reference pads each sample: mlcommons/training,
retired_benchmarks/bert/cleanup_scripts/create_pretraining_data.py. Files are read in order and bounded blocks.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path

from bertbench.common.compressed import unpacking
from bertbench.common.errors import DataError
from bertbench.common.protobuf import masked_crc32c
from bertbench.common.system_faults import unreadable
from bertbench.data.formats.example import feature_bytes, integers
from bertbench.data.formats.rows import BLOCK_ROWS, Block, FilePlace
from bertbench.data.formats.samples import unpadded

_GZIP_MAGIC = b"\x1f\x8b\x08"  # a plain record that began so would have over 559,000 bytes (0x...088b1f)
_LONGEST_RECORD = 1 << 18  # bytes; a sample of 512 tokens has about 4,000, so a block of records takes at most 0.5 GiB
# all of MLPerf's features except masked_lm_weights, which only repeats which positions are padding
_INTEGERS = (
    "input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels", "input_mask",
)  # fmt: skip


def read_tfrecord(path: Path) -> Iterator[Block]:
    """Yield all samples of one file.

    Raises DataError for the first record that is damaged, truncated, faulty, or not an Example with MLPerf's features.
    """
    all_records = read_records(path)
    first = 0
    while records := list(islice(all_records, BLOCK_ROWS)):
        yield _samples(records, FilePlace(path, "record", first))
        first += len(records)


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the bytes of each record.

    Raises DataError if the file can't be read or ends inside a record, or if a checksum is wrong.
    """
    number = 0
    try:
        with _open(path) as stream:
            while stream.peek(1):
                place = FilePlace(path, "record", number)
                header = _read(stream, 12, place)
                length, length_crc = struct.unpack("<QI", header)
                _require_crc(place, "its length", header[:8], length_crc)
                if length > _LONGEST_RECORD:
                    raise place.error(0, f"a record of {length:,} bytes, expected at most {_LONGEST_RECORD:,}")
                record = _read(stream, length, place)
                (record_crc,) = struct.unpack("<I", _read(stream, 4, place))
                _require_crc(place, "its bytes", record, record_crc)
                yield record
                number += 1
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read after {number:,} complete records ({error}); expected a complete TFRecord file, "
            "plain or gzip; download or make it again"
        ) from error
    except OSError as error:
        raise DataError(unreadable(path, error, "give a readable file")) from error


def _open(path: Path) -> BufferedReader | gzip.GzipFile:
    with path.open("rb") as file:
        compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    if compressed:
        return gzip.open(path)
    if packed := unpacking(path):  # a plain record that began so would be too long, too
        raise DataError(f"{path}: {packed}")
    return path.open("rb")


def _read(stream: BufferedReader | gzip.GzipFile, size: int, place: FilePlace) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise place.error(0, f"{len(data):,} bytes before the file ends, expected {size:,}: the file is cut short")
    return data


def _require_crc(place: FilePlace, what: str, data: bytes, expected: int) -> None:
    checksum = masked_crc32c(data)
    if checksum != expected:
        raise place.error(
            0, f"checksum {checksum:08x} of {what}, expected {expected:08x} as stored: damaged, or not a TFRecord file"
        )


def _samples(records: list[bytes], place: FilePlace) -> Block:
    encoded: dict[str, list[bytes]] = {name: [] for name in _INTEGERS}  # a feature's values, record by record
    for row, record in enumerate(records):
        try:
            features = feature_bytes(record)
        except ValueError as error:
            raise place.error(row, f"an invalid tf.train.Example ({error})") from error
        for name, values_of_records in encoded.items():
            if name not in features:
                names = ", ".join(sorted(features)) or "nothing"
                raise place.error(row, f"no feature {name}, but {names}, expected MLPerf's features")
            kind, values = features[name]
            if kind != "integers":
                raise place.error(row, f"{kind} in {name}, expected integers")
            values_of_records.append(values)
    try:
        fields = {name: integers(values_of_records) for name, values_of_records in encoded.items()}
    except ValueError as error:
        raise place.error(0, f"a damaged integer ({error}) in it or a record after it, expected varints") from error
    return unpadded(fields, place)
