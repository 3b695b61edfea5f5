"""Damage files as disks and networks do."""

from pathlib import Path


def flip(path: Path, place: int) -> None:
    """Change one bit of one byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path: Path, length: int) -> None:
    """Keep the first `length` bytes; all but the last ones, if negative."""
    path.write_bytes(path.read_bytes()[:length])
