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
FOLDER = "a folder"
_BLOCK = 1 << 20
_KINDS = {
    stat.S_IFREG: None,
    stat.S_IFDIR: FOLDER,
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
    stamp: Stamp = (0, 0, 0, 0)
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

    def unlisted(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise DataError(
                f"{printable(str(folder))}: cannot be listed ({system_reason(error)}); give the folder of a download"
            ) from error
        path = os.path.relpath(error.filename, folder)
        found.append(Entry(path, kind=f"a folder that cannot be listed ({system_reason(error)})"))

    for where, folders, names in os.walk(folder, onerror=unlisted):
        below = os.path.relpath(where, folder)
        found += (_entry(folder, name if below == "." else f"{below}/{name}") for name in (*folders, *names))
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
            if _stamp(os.fstat(descriptor)) != entry.stamp:
                raise CannotReadError("it changed since it was listed")
            yield stream
    except OSError as error:
        raise CannotReadError(system_reason(error)) from error


def _entry(folder: Path, path: str) -> Entry:
    whole = folder / path
    try:
        status = whole.stat()
    except OSError as error:
        broken = error.errno in (errno.ENOENT, errno.ELOOP)
        return Entry(path, kind="a link to nothing" if broken else f"unreadable ({system_reason(error)})")
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something special")
    return Entry(path, _stamp(status), f"a link to {kind}" if kind and whole.is_symlink() else kind)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
