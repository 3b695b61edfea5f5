"""Read a table of sorted keys, the format of a TensorFlow checkpoint's .index file.

Format: LevelDB's table_format.md, as tensorflow/core/lib/io/format.cc writes it. A footer of 48 bytes points to the
index block, which points to the data blocks. Each block is followed by its compression type and a masked CRC-32C of
both.
"""

from collections.abc import Iterator
from pathlib import Path

from bertbench.checkpoint.tensorflow.snappy import decompress
from bertbench.common.errors import CheckpointError
from bertbench.common.protobuf import masked_crc32c, varint
from bertbench.common.system_faults import unreadable

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_PLAIN, _SNAPPY = 0, 1
_LONGEST_KEY = 4096  # bytes; a few bytes of an entry may repeat the whole key before it


def read_table(path: Path, remedy: str) -> dict[bytes, bytes]:
    """Return all keys with their values, in order; `remedy` says what to do if there is no file.

    Raises CheckpointError if the file can't be read, is not a table, or is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(unreadable(path, error, remedy)) from error
    table: dict[bytes, bytes] = {}
    try:
        if len(data) < FOOTER_BYTES or data[-len(MAGIC) :] != MAGIC:
            raise ValueError(f"{len(data):,} bytes without the end mark of a checkpoint's index")
        footer = data[-FOOTER_BYTES:]
        _, at = _handle(footer, 0)  # of the metaindex, which TensorFlow leaves empty
        index, _ = _handle(footer, at)
        for _, handle in _entries(_block(data, index)):
            for key, value in _entries(_block(data, _handle(handle, 0)[0])):
                if key in table:
                    raise ValueError(f"the key {key!r} is repeated")
                table[key] = value
    except ValueError as error:
        raise CheckpointError(f"{path}: is damaged ({error}); copy the checkpoint again") from error
    return table


def _handle(data: bytes, at: int) -> tuple[slice, int]:
    """Return a block's place in the file, and the start of the next handle."""
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return slice(offset, offset + size), at


def _block(data: bytes, where: slice) -> bytes:
    """Return a block's content, checked and decompressed."""
    end = where.stop + _TRAILER_BYTES
    if end > len(data) - FOOTER_BYTES:
        raise ValueError(f"the block at byte {where.start:,} exceeds the file")
    compression = data[where.stop]
    stored = int.from_bytes(data[where.stop + 1 : end], "little")
    if masked_crc32c(data[where.start : where.stop + 1]) != stored:
        raise ValueError(f"the checksum of the block at byte {where.start:,} is wrong")
    if compression == _SNAPPY:
        return decompress(data[where])
    if compression != _PLAIN:
        raise ValueError(f"the block at byte {where.start:,} has the unknown compression {compression}")
    return data[where]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; an entry's first number is the length that its key shares with the previous key."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    at, key = 0, b""
    if end < 0:
        raise ValueError("a block is shorter than its list of restarts")
    while at < end:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or at + fresh + length > end:
            raise ValueError("an entry exceeds its block")
        if shared + fresh > _LONGEST_KEY:
            raise ValueError(f"a tensor's name of {shared + fresh:,} bytes, expected at most {_LONGEST_KEY:,}")
        key = key[:shared] + block[at : at + fresh]
        yield key, block[at + fresh : at + fresh + length]
        at += fresh + length
