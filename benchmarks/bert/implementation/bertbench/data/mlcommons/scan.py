"""List an untrusted folder and read its files, but never a FIFO, a device, or a link to a folder."""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from bertbench.common.errors import DataError, system_reason
from bertbench.common.printable import printable

MAX_ENTRIES = 100_000  # the published files are about 1,100 with their TFRecords
_BLOCK = 1 << 20
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
Stamp = tuple[int, int, int, int]
"""Size, mtime and ctime in ns, inode: it changes with the file, even if mtime is reset."""


@dataclass(frozen=True)
class Entry:
    """An entry of the folder."""

    path: str
    """Relative to the folder, with surrogates for bytes that are not UTF-8."""
    stamp: Stamp
    kind: str | None = None
    """Its kind, if it is not a readable file."""

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def bytes(self) -> int:
        """Return the size of the file."""
        return self.stamp[0]


class CannotReadError(Exception):
    """A listed file can't be read to its end; the message is the reason."""


def scan(folder: Path) -> list[Entry]:
    """Return everything below `folder`, upper folders first, by path; folders are entered, links to folders are not.

    Raises DataError if `folder` can't be listed or holds over 100,000 entries.
    """
    found: list[Entry] = []
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            names = os.listdir(os.path.join(folder, below))  # noqa: PTH118, PTH208 - pathlib would lose bytes and time
        except OSError as error:
            if not below:
                raise DataError(
                    f"{printable(str(folder))}: cannot be listed ({system_reason(error)}); "
                    "give the folder of a download"
                ) from error
            found.append(Entry(below, (0, 0, 0, 0), f"a folder that cannot be listed ({system_reason(error)})"))
            continue
        for name in names:
            entry = _entry(folder, f"{below}/{name}" if below else name)
            found.append(entry)
            if entry.kind == _KINDS[stat.S_IFDIR]:
                waiting.append(entry.path)
        if len(found) > MAX_ENTRIES:
            raise DataError(
                f"{printable(str(folder))}: found over {MAX_ENTRIES:,} files, expected about 1,100; "
                "give the folder of a download"
            )
    return sorted(found, key=lambda entry: (entry.path.count("/"), entry.path))


def md5_of(folder: Path, entry: Entry, read: Callable[[int], None]) -> str:
    """Return the MD5 of a file, calling `read` with the bytes of each block. Raises CannotReadError."""
    digest = hashlib.md5(usedforsecurity=False)
    left = entry.bytes
    with open_entry(folder, entry) as stream:
        while left and (block := stream.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
            read(len(block))
        if left or _stamp(os.fstat(stream.fileno())) != entry.stamp:
            raise CannotReadError("it changed while it was read")
    return digest.hexdigest()


@contextmanager
def open_entry(folder: Path, entry: Entry) -> Iterator[BinaryIO]:
    """Open a file that `scan` listed. Raises CannotReadError, also for errors while it is read."""
    try:
        # non-blocking: the file may have become a FIFO
        descriptor = os.open(folder / entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or _stamp(status) != entry.stamp:
                raise CannotReadError("it changed since it was listed")
            yield stream
    except OSError as error:
        raise CannotReadError(system_reason(error)) from error


def _entry(folder: Path, path: str) -> Entry:
    whole = folder / path
    try:
        own = whole.lstat()
        if not stat.S_ISLNK(own.st_mode):
            return Entry(path, _stamp(own), _kind(own))
        target = whole.stat()
        kind = _kind(target)
        return Entry(path, _stamp(target), kind and f"a link to {kind}")
    except OSError as error:
        broken = error.errno in (errno.ENOENT, errno.ELOOP)
        reason = "a link to nothing" if broken else f"unreadable ({system_reason(error)})"
        return Entry(path, (0, 0, 0, 0), reason)


def _kind(status: os.stat_result) -> str | None:
    return None if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "something special")


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
