"""Write a file or a folder whole or not at all: under a temporary name, renamed when it is complete."""

import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which it becomes if the body ends well. Raises OSError."""
    unfinished = _beside(path)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, which it becomes if the body ends well. Raises OSError."""
    unfinished = _beside(path)
    unfinished.mkdir()
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_state(path: Path, content: object) -> None:
    """Write `content` as JSON to `path`, where it may replace an earlier state. Raises OSError.

    The temporary name is always the same, so that work which is stopped and goes on leaves nothing beside it.
    """
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)  # what a kill left; and "x" below never writes through a link or into a FIFO
    with partial.open("x") as stream:
        json.dump(content, stream)
    partial.replace(path)


def _beside(path: Path) -> Path:
    """Return a hidden name that no other process, and no killed one, has taken."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
