"""Decode what TensorFlow's files have in common: the wire format of protocol buffers, and the masked CRC-32C.

Formats: protobuf.dev, "Encoding"; LevelDB's log_format.md for the mask. The messages themselves are spelled out where
they are read.
"""

from collections.abc import Iterator

import google_crc32c

# Wire types.
VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
MAX_VARINT_BYTES = 10  # for 64 bits, 7 in each byte
_MASK_DELTA = 0xA282EAD8


def varint(data: bytes, at: int, end: int | None = None) -> tuple[int, int]:
    """Return the unsigned varint at `at`, and the place of the byte after it.

    Raises ValueError if it continues beyond `end` (default: the end of `data`) or has more than 10 bytes.
    """
    end = len(data) if end is None else end
    if at < end and data[at] < 0x80:  # most have one byte; MLPerf's records have seventy each
        return data[at], at + 1
    value = 0
    for place in range(MAX_VARINT_BYTES):
        if at + place >= end:
            raise ValueError("a number that is cut short")
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError(f"a number of more than {MAX_VARINT_BYTES} bytes")


def field_spans(message: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, start and end of the value of each field between two places of a message.

    Raises ValueError if the message is damaged.
    """
    at = start
    while at < end:
        key, at = varint(message, at, end)
        wire = key & 7
        if wire == BYTES:
            length, at = varint(message, at, end)
            until = at + length
        elif wire == VARINT:
            _, until = varint(message, at, end)
        elif wire == FIXED32:
            until = at + 4
        elif wire == FIXED64:
            until = at + 8
        else:
            raise ValueError(f"wire type {wire}")
        if until > end:
            raise ValueError("a field that is longer than its message")
        yield key >> 3, wire, at, until
        at = until


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field, in order: scalars as int, strings and embedded messages as bytes.

    Raises ValueError if the message is damaged.
    """
    for number, wire, start, end in field_spans(message, 0, len(message)):
        content = message[start:end]
        if wire == BYTES:
            yield number, content
        elif wire == VARINT:
            value, _ = varint(content, 0)
            yield number, value
        else:
            yield number, int.from_bytes(content, "little")


def as_number(value: int | bytes) -> int:
    """Return a field that must be a number. Raises ValueError if it is something else."""
    if isinstance(value, bytes):
        raise ValueError("found bytes where a number is expected")  # noqa: TRY004 - the data is wrong, not the call
    return value


def as_bytes(value: int | bytes) -> bytes:
    """Return a field that must be a string or an embedded message. Raises ValueError if it is something else."""
    if isinstance(value, int):
        raise ValueError("found a number where bytes are expected")  # noqa: TRY004 - the data is wrong, not the call
    return value


def masked(crc: int) -> int:
    """Return a CRC-32C as it is stored: rotated and shifted, so that CRCs of data that contains CRCs stay reliable."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of bytes in the form in which files store it."""
    return masked(google_crc32c.value(data))
