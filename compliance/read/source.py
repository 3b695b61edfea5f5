"""Open untrusted files without hanging: only plain files and standard input, and only up to a size limit.

The judge and the report open all files here: logs, and the files next to them.
"""

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

STDIN = Path("-")
LARGEST_LOG = 1 << 30  # bytes; published logs are below 50 MB, the limit for a file in a submission
_IN_MEMORY = 16 << 20

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder without result_*.txt",
}
_SIGNATURES = {
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


class CannotJudge(Exception):  # noqa: N818 - the verdict's name
    """An input that isn't a log. The message says what was found and expected; `line` is the line at fault, if any."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def found_at(path: Path, problem: CannotJudge) -> str:
    """Return what was found at a path, without the path and the remedy."""
    return str(problem).removeprefix(f"{path}: ").removeprefix("found ").partition("; ")[0]


@contextmanager
def open_plain(path: Path, largest: int = LARGEST_LOG) -> Iterator[BinaryIO]:
    """Open a plain file of at most `largest` bytes, or standard input for `-`. Raises CannotJudge."""
    with _spooled() if path == STDIN else _plain_file(path, largest) as stream:
        yield stream


def read_plain(path: Path, largest: int) -> bytes:
    """Return all bytes of a plain file. Raises CannotJudge if it can't be read or has more than `largest` bytes."""
    with open_plain(path, largest) as stream:
        return stream.read()


def likely_kind(start: bytes) -> str:
    """Return the likely kind of a file without MLPerf lines, from its first bytes."""
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            return kind
    if 4 * start.count(b"\0") > len(start):
        return "binary data, or UTF-16 text"
    return "text without MLPerf lines" if start else "an empty file"


@contextmanager
def _plain_file(path: Path, largest: int) -> Iterator[BinaryIO]:
    try:
        _refuse_special(path, path.stat(), largest)  # before opening: opening a device can act on it
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            _refuse_special(path, status, largest)  # and after: the file may have been replaced
            yield cast(BinaryIO, _Window(file, status.st_size))
    except (OSError, ValueError) as error:
        raise CannotJudge(f"{path}: {_unreadable(error)}; give a log or a folder of logs") from error


class _Window:
    """The first `size` bytes of a file, because a file that grows, or a kernel's file, may have no end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self.seek = file.seek

    def read(self, most: int = LARGEST_LOG) -> bytes:
        return self._file.read(max(0, min(most, self._size - self._file.tell())))


def _refuse_special(path: Path, status: os.stat_result, largest: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
        raise CannotJudge(f"{path}: found {kind}, not a regular file; give a log or a folder of logs")
    if status.st_size > largest:
        raise CannotJudge(f"{path}: found {status.st_size:,} bytes; expected at most {largest:,}")


def _unreadable(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return f"found a name that cannot be opened ({error})"
    if error.errno == errno.ENOENT:
        return "no such file or folder"
    return f"found a file that cannot be read ({error.strerror})"


@contextmanager
def _spooled() -> Iterator[BinaryIO]:
    """Keep standard input in memory or in a temporary file, because a large log is read more than once."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        size = 0
        while block := sys.stdin.buffer.read(1 << 20):
            size += len(block)
            if size > LARGEST_LOG:
                raise CannotJudge(f"-: found more than {LARGEST_LOG:,} bytes; expected a log of at most that size")
            spool.write(block)
        yield cast(BinaryIO, spool)
