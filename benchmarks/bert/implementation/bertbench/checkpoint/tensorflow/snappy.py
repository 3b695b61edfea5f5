"""Decompress Snappy blocks, in which MLCommons' checkpoint stores its index.

Its index has 17,371 bytes. Without compression, the 1,197 tensors of its data file need 45,104.
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
        kind, rest = tag & 3, tag >> 2
        # number of bytes after the tag: they hold the length of a literal above 60 bytes, or the offset of a copy
        extra = (max(0, rest - 59), 1, 2, 4)[kind]
        number = int.from_bytes(data[at + 1 : at + 1 + extra], "little")
        at += 1 + extra
        if kind == 0:
            length = 1 + (number if extra else rest)
            if at + length > len(data):
                raise ValueError("a Snappy literal exceeds its block")
            out += data[at : at + length]
            at += length
        elif at > len(data):
            raise ValueError("a Snappy copy exceeds its block")
        elif kind == 1:
            _copy(out, (tag >> 5) << 8 | number, 4 + (rest & 7))
        else:
            _copy(out, number, 1 + rest)
    if len(out) != expected:
        raise ValueError(f"a Snappy block has {len(out):,} bytes, expected {expected:,}")
    return bytes(out)


def _copy(out: bytearray, offset: int, length: int) -> None:
    """Append `length` bytes from `offset` bytes back; both ranges may overlap."""
    if not 0 < offset <= len(out):
        raise ValueError(f"a Snappy copy reaches back {offset:,} bytes, but there are {len(out):,}")
    start = len(out) - offset
    pattern = bytes(out[start : start + length])
    out += (pattern * (length // len(pattern) + 1))[:length]
