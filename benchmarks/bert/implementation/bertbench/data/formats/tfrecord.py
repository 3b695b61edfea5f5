"""Read MLPerf's TFRecord files, plain or gzip, without TensorFlow, in file order and bounded blocks.

A record is: length (8 bytes, little endian), masked CRC-32C of it (4), the bytes, masked CRC-32C of them (4);
the format's documentation is tensorflow.org's "TFRecord and tf.train.Example".
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path

from bertbench.common.errors import DataError
from bertbench.common.protobuf import masked_crc32c
from bertbench.common.system_faults import unreadable
from bertbench.data.formats.example import feature_bytes, integers
from bertbench.data.formats.rows import BLOCK_ROWS, Block, Place
from bertbench.data.formats.samples import unpadded

_GZIP_MAGIC = b"\x1f\x8b\x08"  # a plain record that began so would have over 559,000 bytes (0x...088b1f)
# of MLPerf's seven features, masked_lm_weights repeats which positions are padding
_INTEGERS = (
    "input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels", "input_mask",
)  # fmt: skip


def read_tfrecord(path: Path) -> Iterator[Block]:
    """Yield all samples of one file.

    Raises DataError for the first record that is damaged, truncated, faulty, or not an Example with MLPerf's features.
    """
    first, stream = 0, read_records(path)
    while records := list(islice(stream, BLOCK_ROWS)):
        yield _samples(records, Place(path, "record", first))
        first += len(records)


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the bytes of each record.

    Raises DataError if the file can't be read or ends inside a record, or if a checksum is wrong.
    """
    number = 0
    try:
        with _open(path) as stream:
            while stream.peek(1):
                place = Place(path, "record", number)
                header = _read(stream, 12, place)
                length, length_crc = struct.unpack("<QI", header)
                _require_crc(place, "its length", header[:8], length_crc)
                record, trailer = _read(stream, length, place), _read(stream, 4, place)
                _require_crc(place, "its bytes", record, struct.unpack("<I", trailer)[0])
                yield record
                number += 1
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read after {number:,} whole records ({error}); expected a whole TFRecord file, "
            "plain or gzip; get or make it again"
        ) from error
    except OSError as error:
        raise DataError(unreadable(path, error, "give a readable file")) from error


def _open(path: Path) -> BufferedReader | gzip.GzipFile:
    with path.open("rb") as file:
        compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    return gzip.open(path) if compressed else path.open("rb")


def _read(stream: BufferedReader | gzip.GzipFile, size: int, place: Place) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise place.error(0, f"{len(data):,} bytes before the file ends, expected {size:,}: the file is cut short")
    return data


def _require_crc(place: Place, of: str, data: bytes, expected: int) -> None:
    if (found := masked_crc32c(data)) != expected:
        raise place.error(
            0, f"checksum {found:08x} of {of}, expected {expected:08x} as stored: damaged, or not a TFRecord file"
        )


def _samples(records: list[bytes], place: Place) -> Block:
    chunks: dict[str, list[bytes]] = {name: [] for name in _INTEGERS}
    for row, record in enumerate(records):
        try:
            features = feature_bytes(record)
        except ValueError as error:
            raise place.error(row, f"an invalid tf.train.Example ({error})") from error
        for name, found in chunks.items():
            if name not in features:
                held = ", ".join(sorted(features)) or "nothing"
                raise place.error(row, f"no feature {name}, but {held}, expected MLPerf's features")
            kind, values = features[name]
            if kind != "integers":
                raise place.error(row, f"{kind} in {name}, expected integers")
            found.append(values)
    try:
        fields = {name: integers(found) for name, found in chunks.items()}
    except ValueError as error:
        raise place.error(0, f"a damaged integer ({error}) in it or a record after it, expected varints") from error
    return unpadded(fields, place)
