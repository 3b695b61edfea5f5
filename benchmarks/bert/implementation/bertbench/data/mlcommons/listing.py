"""List an untrusted folder and read its files, but never a FIFO, a device, or a link to a folder."""

import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import DataError, system_reason
from compliance.read.record import printable

MAX_ENTRIES = 100_000  # there are about 510 published files
BLOCK = 1 << 20


class ListedFile(NamedTuple):
    """A file of the folder, or something that is not to be read."""

    path: str
    """Relative to the folder, with surrogates for bytes that are not UTF-8."""
    bytes: int | None
    kind: str = ""
    """What it is, if it isn't a readable file and has no size."""

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return posixpath.basename(self.path)


def listing(folder: Path) -> list[ListedFile]:
    """Return the files below `folder`, upper folders first, by path; folders are entered, links to folders are not.

    Raises DataError if `folder` can't be listed or holds over 100,000 entries.
    """
    files: list[ListedFile] = []
    errors: list[OSError] = []
    for where, folders, names in os.walk(folder, onerror=errors.append):
        links = [name for name in folders if os.path.islink(f"{where}/{name}")]  # noqa: PTH114 - Path raises
        for name in (*links, *names):
            files.append(_listed_file(folder, os.path.relpath(f"{where}/{name}", folder)))
        if len(files) > MAX_ENTRIES:
            raise DataError(
                f"{printable(str(folder))}: found over {MAX_ENTRIES:,} files, expected about 510; "
                "give the folder of a download"
            )
    for error in errors:
        reason = system_reason(error)
        if Path(error.filename) == folder:
            raise DataError(f"{printable(str(folder))}: cannot be listed ({reason}); give the folder of a download")
        path = os.path.relpath(error.filename, folder)
        files.append(ListedFile(path, None, f"a folder that cannot be listed ({reason})"))
    return sorted(files, key=lambda file: (file.path.count("/"), file.path))


def blocks(folder: Path, file: ListedFile) -> Iterator[bytes]:
    """Yield the content of a listed file, at most 1 MiB at a time. Raises OSError."""
    with (folder / file.path).open("rb") as stream:
        while block := stream.read(BLOCK):
            yield block


def _listed_file(folder: Path, path: str) -> ListedFile:
    try:
        status = (folder / path).stat()
    except OSError as error:
        return ListedFile(path, None, f"unreadable ({system_reason(error)})")
    if stat.S_ISREG(status.st_mode):
        return ListedFile(path, status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return ListedFile(path, None, "a link to a folder")
    return ListedFile(path, None, "not a regular file")
