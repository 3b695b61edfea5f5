"""Write a file or a folder completely or not at all: under a temporary name, renamed when complete."""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path, renamed to `path` if the body ends without an error. Raises OSError."""
    unfinished = _beside(path)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, renamed to `path` if the body ends without an error. Raises OSError."""
    unfinished = _beside(path)
    unfinished.mkdir()
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_state(path: Path, content: object) -> None:
    """Write `content` as JSON to `path`, replacing an earlier state. Raises OSError.

    The temporary name is always the same, so interrupted work leaves no further files.
    """
    partial = path.with_suffix(".partial")
    partial.unlink(
        missing_ok=True
    )  # a killed process may leave it; "x" below never writes through a link or into a FIFO
    with partial.open("x") as stream:
        json.dump(content, stream)
    partial.replace(path)


def _beside(path: Path) -> Path:
    """Return a hidden name that no other process, living or killed, has taken."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
