"""Remember the MD5 of files, so that a stopped check resumes."""

import json
import stat
import time
from pathlib import Path

from bertbench.common.atomic import write_state
from bertbench.common.errors import system_reason
from bertbench.common.printable import printable
from bertbench.common.progress import Progress
from bertbench.data.mlcommons.listing import Entry

_FORMAT = "bertbench data verify 2"
_LARGEST = 64 << 20  # bytes; 100,000 files take 20 MB
_SAVE_EVERY_S = 1.0
_CLOCK_TICK_NS = 20_000_000  # file times are those of the last clock tick, at most 10 ms old


class Record:
    """MD5 of files, each valid for one path, size, mtime, ctime and inode."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._sums = remembered_in(path) or {}
        self._failed = False
        self._unsaved = False
        self._saved_s = time.monotonic()

    def md5(self, entry: Entry) -> str | None:
        """Return the MD5 from an earlier check, if the file hasn't changed since."""
        return self._sums.get(_key(entry))

    def add(self, entry: Entry, md5: str, began_ns: int) -> None:
        """Remember the MD5 of a reading that began at `began_ns`, unless the file may have changed since."""
        if entry.stamp and began_ns - max(entry.stamp[1:3]) > _CLOCK_TICK_NS:
            self._sums[_key(entry)] = md5
            self._unsaved = True
        if time.monotonic() - self._saved_s > _SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Write what is new; if that fails, warn once and continue without a record."""
        if self._failed or not self._unsaved:
            return
        self._unsaved, self._saved_s = False, time.monotonic()
        try:
            write_state(self._path, {"format": _FORMAT, "md5": self._sums})
        except OSError as error:
            self._failed = True
            self._progress.message(
                f"{printable(str(self._path))}: cannot be written ({system_reason(error)}); "
                "a stopped check will start again; give --state FILE"
            )


def remembered_in(path: Path) -> dict[str, str] | None:
    """Return what an earlier check wrote; None for any other file, as a user's own must not be overwritten."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return None
        content = json.loads(path.read_text("ascii"))
        return {str(key): str(md5) for key, md5 in content["md5"].items()} if content["format"] == _FORMAT else None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _key(entry: Entry) -> str:
    return f"{entry.stamp} {entry.path}"
