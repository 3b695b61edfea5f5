"""Damage files in the ways that disks and networks do, and manifests that no longer fit their data."""

import json
from collections.abc import Callable
from pathlib import Path


def flip(path: Path, place: int) -> None:
    """Change one bit of one byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path: Path, length: int) -> None:
    """Keep the first `length` bytes; all but the last ones, if negative."""
    path.write_bytes(path.read_bytes()[:length])


def instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Replace the file, if there is one, by something else."""

    def change(path: Path) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return change


def linked(target: str) -> Callable[[Path], object]:
    return instead(lambda path: path.symlink_to(target))


def change_manifest(folder: Path, *where: str | int, value: object) -> None:
    """Change one value of a dataset's manifest."""
    path = folder / "manifest.json"
    content = part = json.loads(path.read_text())
    for name in where[:-1]:
        part = part[name]
    part[where[-1]] = value
    path.write_text(json.dumps(content))
