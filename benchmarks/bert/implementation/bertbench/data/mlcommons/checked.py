"""Remember the MD5 of files, so that a stopped check resumes."""

import json
import stat
import time
from pathlib import Path

from bertbench.common.atomic import write_state
from bertbench.common.errors import system_reason
from bertbench.common.printable import printable
from bertbench.common.progress import Progress
from bertbench.data.mlcommons.scan import Entry

_FORMAT = "bertbench data doctor 1"
_START = json.dumps({"format": _FORMAT}).encode()[:-1]
_LARGEST = 64 << 20  # bytes; 100,000 entries take 15 MB
_CLOCK_TICK_NS = 20_000_000  # file times are those of the last clock tick, at most 10 ms old
_SAVING_SHARE = 0.05  # share of time: a list that takes 1 s is saved every 20 s, a small one after every file


class Checked:
    """The MD5 of files by path, each valid for one size, mtime, ctime and inode."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._sums = _read(path)
        self._saved_at = self._saving_took = 0.0
        self._failed = self._changed = False

    def md5(self, entry: Entry) -> str | None:
        """Return the MD5 from an earlier check, if the file hasn't changed since."""
        stamp, md5 = self._sums.get(entry.path, (None, None))
        return md5 if stamp == list(entry.stamp) else None

    def add(self, entry: Entry, md5: str, began_ns: int) -> None:
        """Remember the MD5 of a reading that began at `began_ns`, unless the file may have changed since."""
        if began_ns - max(entry.stamp[1], entry.stamp[2]) > _CLOCK_TICK_NS:
            self._sums[entry.path] = (list(entry.stamp), md5)
            self._changed = True
        if time.monotonic() - self._saved_at > self._saving_took / _SAVING_SHARE:
            self.save()

    def save(self) -> None:
        """Write the file if there are new sums; if that fails, warn once and continue without it."""
        if not self._changed:
            return
        began = time.monotonic()
        self._changed = False
        try:
            write_state(self._path, {"format": _FORMAT, "files": self._sums})
        except OSError as error:
            if not self._failed:
                self._progress.message(
                    f"{printable(str(self._path))}: cannot be written ({system_reason(error)}); "
                    "a stopped check will start again; give --state FILE"
                )
            self._failed = True
        self._saved_at = time.monotonic()
        self._saving_took = self._saved_at - began


def is_ours(path: Path) -> bool:
    """Return whether an earlier check wrote a regular file; a user's own file must not be overwritten."""
    with path.open("rb") as stream:
        return stream.read(len(_START)) == _START


def _read(path: Path) -> dict[str, tuple[list[int], str]]:
    """Return the sums of an earlier check; none if the file is missing or another program's."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return {}
        content = json.loads(path.read_bytes())
        if content["format"] != _FORMAT:
            return {}
        return {str(name): ([int(one) for one in stamp], str(md5)) for name, (stamp, md5) in content["files"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return {}
