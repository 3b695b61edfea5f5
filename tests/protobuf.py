"""Write protobuf messages and LevelDB's checksum, to test readers with."""

import struct

import google_crc32c


def varint(value: int) -> bytes:
    value %= 1 << 64
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def scalar(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def embedded(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def masked_crc(data: bytes) -> bytes:
    """CRC-32C, then LevelDB's mask."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % (1 << 32))
