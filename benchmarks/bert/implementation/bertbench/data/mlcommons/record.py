"""Remember the MD5 of files, a line each, so that a stopped check resumes."""

import json
import stat
from pathlib import Path
from typing import TextIO

from bertbench.common.errors import system_reason
from bertbench.common.printable import printable
from bertbench.common.progress import Progress
from bertbench.data.mlcommons.scan import Entry

_HEAD = '{"format": "bertbench data verify 1"}\n'
_LARGEST = 64 << 20  # bytes; 100,000 files take 20 MB
_CLOCK_TICK_NS = 20_000_000  # file times are those of the last clock tick, at most 10 ms old


class Record:
    """The MD5 of files by path, each valid for one size, mtime, ctime and inode."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._sums: dict[str, tuple[list[int], str]] = {}
        self._failed = False
        if is_ours(path):
            self._read()

    def md5(self, entry: Entry) -> str | None:
        """Return the MD5 from an earlier check, if the file hasn't changed since."""
        stamp, md5 = self._sums.get(entry.path, (None, None))
        return md5 if stamp == list(entry.stamp) else None

    def add(self, entry: Entry, md5: str, began_ns: int) -> None:
        """Remember the MD5 of a reading that began at `began_ns`, unless the file may have changed since.

        If the record can't be written, warn once and continue without it.
        """
        if self._failed or began_ns - max(entry.stamp[1], entry.stamp[2]) <= _CLOCK_TICK_NS:
            return
        try:
            with self._open() as stream:
                stream.write(json.dumps([entry.path, entry.stamp, md5]) + "\n")
        except OSError as error:
            self._failed = True
            self._progress.message(
                f"{printable(str(self._path))}: cannot be written ({system_reason(error)}); "
                "a stopped check will start again; give --state FILE"
            )

    def _open(self) -> TextIO:
        if is_ours(self._path):
            return self._path.open("a", encoding="ascii")
        self._path.unlink(missing_ok=True)
        stream = self._path.open("x", encoding="ascii")  # never through a link or into a FIFO
        stream.write(_HEAD)
        return stream

    def _read(self) -> None:
        for line in self._path.read_text("ascii", "replace").splitlines()[1:]:
            try:
                name, stamp, md5 = json.loads(line)
                self._sums[name] = (list(stamp), str(md5))
            except (ValueError, TypeError, RecursionError):
                continue  # a killed check leaves half a line


def is_ours(path: Path) -> bool:
    """Return whether an earlier check wrote a file; a user's own file must not be overwritten."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return False
        with path.open("rb") as stream:
            return stream.read(len(_HEAD)) == _HEAD.encode()
    except OSError:
        return False
