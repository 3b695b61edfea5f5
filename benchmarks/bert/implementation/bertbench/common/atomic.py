"""Write completely or not at all: a file or a folder under a temporary name, and whole lines at the end of a file."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from bertbench.common.errors import RunError, system_reason


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


class LineFile:
    """Appends text to a file, immediately and either completely or not at all; without a path, it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        """Raise RunError if the file can't be opened."""
        self._path = path
        try:
            self._handle = os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise self._refused(error) from error

    def append(self, lines: str) -> None:
        """Append text that ends with a newline. If it doesn't fit, raise RunError and leave the file unchanged."""
        data, written = lines.encode(), 0
        try:
            while written < len(data):  # a write that follows a short one raises the reason: full disk, `ulimit -f`
                written += os.write(self._handle, data[written:])
        except OSError as error:
            if written:
                os.ftruncate(self._handle, os.fstat(self._handle).st_size - written)
            raise self._refused(error) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refused(self, error: OSError) -> RunError:
        return RunError(
            f"{self._path}: cannot be written ({system_reason(error)}); make room there, lift `ulimit -f`, or set "
            "LOGDIR to another disk"
        )


def _hidden_path(path: Path) -> Path:
    """Return a hidden path that no other process uses or has left behind."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")
