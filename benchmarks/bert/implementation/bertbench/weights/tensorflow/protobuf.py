"""The protocol-buffer wire format, as much of it as a checkpoint's index needs.

Format: protobuf.dev, "Encoding". The messages themselves are spelled out where they are read.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned varint at `at`, and where the next byte is.

    Raises ValueError if it runs over the end.
    """
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        if at + count >= len(data):
            break
        byte = data[at + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise ValueError("a number runs over the end")


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field, in order: an int of a scalar, bytes of a string or an embedded message.

    Raises ValueError if the message is damaged.
    """
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, at = varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field has the unknown wire type {kind}")
        if at + length > len(message):
            raise ValueError("a field runs over the end of its message")
        content = message[at : at + length]
        at += length
        yield key >> 3, content if kind == _BYTES else int.from_bytes(content, "little")


def as_number(value: int | bytes) -> int:
    """A field that must be a number.

    Raises ValueError if it is something else.
    """
    if isinstance(value, bytes):
        raise ValueError("found bytes where a number is expected")  # noqa: TRY004 - the data is wrong, not the call
    return value


def as_bytes(value: int | bytes) -> bytes:
    """A field that must be a string or an embedded message.

    Raises ValueError if it is something else.
    """
    if isinstance(value, int):
        raise ValueError("found a number where bytes are expected")  # noqa: TRY004 - the data is wrong, not the call
    return value
