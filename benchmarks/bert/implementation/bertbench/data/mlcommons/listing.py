"""List an untrusted folder and read its files, but never a FIFO, a device, or a link to a folder."""

import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import DataError, system_reason
from compliance.read.record import printable

MAX_ENTRIES = 100_000  # the published files are about 510
BLOCK = 1 << 20


class Entry(NamedTuple):
    """A file of the folder, or something that is not read."""

    path: str
    """Relative to the folder, with surrogates for bytes that are not UTF-8."""
    bytes: int | None
    kind: str = ""
    """Its kind, if it has no size: it is not a readable file."""

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return posixpath.basename(self.path)


def listing(folder: Path) -> list[Entry]:
    """Return the files below `folder`, upper folders first, by path; folders are entered, links to folders are not.

    Raises DataError if `folder` can't be listed or holds over 100,000 entries.
    """
    found: list[Entry] = []
    errors: list[OSError] = []
    for where, folders, names in os.walk(folder, onerror=errors.append):
        links = [name for name in folders if os.path.islink(f"{where}/{name}")]  # noqa: PTH114 - Path raises
        found += (_entry(folder, os.path.relpath(f"{where}/{name}", folder)) for name in (*links, *names))
        if len(found) > MAX_ENTRIES:
            raise DataError(
                f"{printable(str(folder))}: found over {MAX_ENTRIES:,} files, expected about 510; "
                "give the folder of a download"
            )
    for error in errors:
        reason = system_reason(error)
        if Path(error.filename) == folder:
            raise DataError(f"{printable(str(folder))}: cannot be listed ({reason}); give the folder of a download")
        found.append(Entry(os.path.relpath(error.filename, folder), None, f"a folder that cannot be listed ({reason})"))
    return sorted(found, key=lambda entry: (entry.path.count("/"), entry.path))


def blocks(folder: Path, entry: Entry) -> Iterator[bytes]:
    """Yield the content of a listed file, at most 1 MiB at a time. Raises OSError."""
    with (folder / entry.path).open("rb") as stream:
        while block := stream.read(BLOCK):
            yield block


def _entry(folder: Path, path: str) -> Entry:
    try:
        status = (folder / path).stat()
    except OSError as error:
        return Entry(path, None, f"unreadable ({system_reason(error)})")
    if stat.S_ISREG(status.st_mode):
        return Entry(path, status.st_size)
    return Entry(path, None, "a link to a folder" if stat.S_ISDIR(status.st_mode) else "no regular file")
