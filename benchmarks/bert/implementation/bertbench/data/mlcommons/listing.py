"""List an untrusted folder and read its files, but never a FIFO, a device, or a link to a folder."""

import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import DataError, system_reason
from bertbench.common.printable import printable

MAX_ENTRIES = 100_000  # the published files are about 1,100 with their TFRecords
BLOCK = 1 << 20
Stamp = tuple[int, int, int, int]
"""Size, mtime and ctime in ns, inode: it changes with the file, even if mtime is reset."""


class Entry(NamedTuple):
    """A file of the folder, or something that is not read."""

    path: str
    """Relative to the folder, with surrogates for bytes that are not UTF-8."""
    stamp: Stamp | None
    kind: str = ""
    """Its kind, if it has no stamp: it is not a readable file."""

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return posixpath.basename(self.path)

    @property
    def bytes(self) -> int | None:
        """Return the size of the file."""
        return self.stamp and self.stamp[0]


class CannotReadError(Exception):
    """A listed file can't be read to its end; the message is the reason."""


def listing(folder: Path) -> list[Entry]:
    """Return the files below `folder`, upper folders first, by path; folders are entered, links to folders are not.

    Raises DataError if `folder` can't be listed or holds over 100,000 entries.
    """
    found: list[Entry] = []

    def unlisted(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise DataError(
                f"{printable(str(folder))}: cannot be listed ({system_reason(error)}); give the folder of a download"
            ) from error
        reason = f"a folder that cannot be listed ({system_reason(error)})"
        found.append(Entry(os.path.relpath(error.filename, folder), None, reason))

    for where, folders, names in os.walk(folder, onerror=unlisted):
        links = [name for name in folders if os.path.islink(f"{where}/{name}")]  # noqa: PTH114 - Path raises
        found += (_entry(folder, os.path.relpath(f"{where}/{name}", folder)) for name in (*links, *names))
        if len(found) > MAX_ENTRIES:
            raise DataError(
                f"{printable(str(folder))}: found over {MAX_ENTRIES:,} files, expected about 1,100; "
                "give the folder of a download"
            )
    return sorted(found, key=lambda entry: (entry.path.count("/"), entry.path))


def blocks(folder: Path, entry: Entry) -> Iterator[bytes]:
    """Yield the content of a listed file, at most 1 MiB at a time.

    Raises CannotReadError, also if it isn't the listed file any more, before the first block or after the last.
    """
    left = entry.bytes or 0
    try:
        # non-blocking: the file may have become a FIFO
        descriptor = os.open(folder / entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            if _stamp(os.fstat(descriptor)) != entry.stamp:
                raise CannotReadError("it changed since it was listed")
            while left and (block := stream.read(min(left, BLOCK))):
                yield block
                left -= len(block)
            if left or _stamp(os.fstat(descriptor)) != entry.stamp:
                raise CannotReadError("it changed while it was read")
    except OSError as error:
        raise CannotReadError(system_reason(error)) from error


def _entry(folder: Path, path: str) -> Entry:
    try:
        status = (folder / path).stat()
    except OSError as error:
        return Entry(path, None, f"unreadable ({system_reason(error)})")
    if stat.S_ISREG(status.st_mode):
        return Entry(path, _stamp(status))
    return Entry(path, None, "a link to a folder" if stat.S_ISDIR(status.st_mode) else "no regular file")


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
