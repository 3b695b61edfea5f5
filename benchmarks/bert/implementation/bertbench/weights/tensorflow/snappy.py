"""Decompress Snappy blocks: TensorFlow compressed the index of some published checkpoints with it.

Format: google/snappy, format_description.txt.
"""

from bertbench.common.protobuf import varint


def decompress(data: bytes) -> bytes:
    """Return the content of one raw Snappy block.

    Raises ValueError if it is damaged.
    """
    expected, at = varint(data, 0)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        kind, at = tag & 3, at + 1
        if kind == 0:
            length, at = _literal_length(data, tag >> 2, at)
            if at + length > len(data):
                raise ValueError("a Snappy literal exceeds its block")
            out += data[at : at + length]
            at += length
            continue
        extra = (1, 2, 4)[kind - 1]  # bytes of the offset that follow the tag
        if at + extra > len(data):
            raise ValueError("a Snappy copy exceeds its block")
        offset = int.from_bytes(data[at : at + extra], "little")
        if kind == 1:
            offset |= (tag >> 5) << 8
            length = 4 + (tag >> 2 & 7)
        else:
            length = 1 + (tag >> 2)
        at += extra
        _copy(out, offset, length)
    if len(out) != expected:
        raise ValueError(f"a Snappy block has {len(out):,} bytes, expected {expected:,}")
    return bytes(out)


def _literal_length(data: bytes, code: int, at: int) -> tuple[int, int]:
    """Return a literal's length and start; codes from 60 give the number of bytes that hold the length."""
    if code < 60:
        return code + 1, at
    width = code - 59
    return int.from_bytes(data[at : at + width], "little") + 1, at + width


def _copy(out: bytearray, offset: int, length: int) -> None:
    """Append `length` bytes from `offset` bytes back; both ranges may overlap."""
    if not 0 < offset <= len(out):
        raise ValueError(f"a Snappy copy reaches back {offset:,} bytes, but there are {len(out):,}")
    start = len(out) - offset
    pattern = bytes(out[start : start + length])
    out += (pattern * (length // len(pattern) + 1))[:length]
