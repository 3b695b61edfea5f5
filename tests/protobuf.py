"""Write protobuf messages and LevelDB's checksum, for readers to be tried against."""

import struct


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
    """CRC-32C bit by bit (polynomial 0x1EDC6F41, reflected), then LevelDB's mask."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % (1 << 32))
