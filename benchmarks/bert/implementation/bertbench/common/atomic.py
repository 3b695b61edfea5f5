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
    unfinished = _hidden_path(path)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, renamed to `path` if the body ends without an error. Raises OSError."""
    with scratch_folder(path) as unfinished:
        yield unfinished
        unfinished.replace(path)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`, which is removed after the body. Raises OSError."""
    scratch = _hidden_path(path)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_state(path: Path, content: object) -> None:
    """Write `content` as JSON to `path`, replacing an earlier state. Raises OSError.

    The temporary name is always the same, so interrupted writes never leave more than one file.
    """
    partial = path.with_suffix(".partial")
    # a killed process may have left this file; "x" below never writes through a link or into a FIFO
    partial.unlink(missing_ok=True)
    with partial.open("x") as stream:
        json.dump(content, stream)
    partial.replace(path)


def _hidden_path(path: Path) -> Path:
    """Return a hidden path that no other process uses or has left behind."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
