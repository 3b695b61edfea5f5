"""Open a log that nobody vouches for: plain files and standard input only, of bounded size, without hanging."""

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
LARGEST_LOG = 1 << 30  # bytes; published logs are below 50 MB, the limit for a file of a submission
_IN_MEMORY = 16 << 20

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
_SIGNATURES = {
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


class CannotJudge(Exception):  # noqa: N818 - the verdict's name
    """What is no log: the message says what was found and what was expected; `line` is the line to blame, if any."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a plain file, or of standard input for `-`. Raises CannotJudge."""
    with _spooled() if path == STDIN else _plain_file(path) as stream:
        yield stream


def kind_of(start: bytes) -> str:
    """What a file without MLPerf lines seems to be, by its first bytes."""
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            return kind
    if 4 * start.count(b"\0") > len(start):
        return "UTF-16 text" if b"M\0L\0L\0O\0G" in start else "binary data"
    return "text without MLPerf lines" if start else "an empty file"


@contextmanager
def _plain_file(path: Path) -> Iterator[BinaryIO]:
    try:
        _refuse_special(path, path.stat())  # before it is opened: opening a device can act on it
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as stream:
            _refuse_special(path, os.fstat(descriptor))  # and after: it may have been exchanged
            yield stream
    except (OSError, ValueError) as error:
        raise CannotJudge(f"{path}: {_unreadable(error)}; give a log or a folder of logs") from error


def _refuse_special(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something special")
        raise CannotJudge(f"{path}: is {kind}, no regular file; give a log or a folder of logs")
    if status.st_size > LARGEST_LOG:
        raise CannotJudge(f"{path}: has {status.st_size:,} bytes; a log may have {LARGEST_LOG:,}")


def _unreadable(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return f"cannot be opened ({error})"
    if error.errno == errno.ENOENT:
        return "found nothing there"
    return f"cannot be read ({error.strerror})"


@contextmanager
def _spooled() -> Iterator[BinaryIO]:
    """Standard input, in memory or in a temporary file: a large log is read more than once."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
        size = 0
        while block := sys.stdin.buffer.read(1 << 20):
            size += len(block)
            if size > LARGEST_LOG:
                raise CannotJudge(f"-: gave more than {LARGEST_LOG:,} bytes; no log is that long")
            spool.write(block)
        yield cast(BinaryIO, spool)
