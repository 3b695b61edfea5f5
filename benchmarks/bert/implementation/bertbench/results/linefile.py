"""A file that grows by whole lines: what doesn't fit on the disk isn't half there."""

import os
from pathlib import Path
from typing import Self

from bertbench.common.errors import RunError, system_reason


class LineFile:
    """Appends text to a file, each time at once and whole, or not at all; without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        """Raise RunError if the file can't be opened."""
        self._path = path
        try:
            self._handle = os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise self._refused(error) from error

    def append(self, lines: str) -> None:
        """Add text that ends with a line's end; raises RunError, and leaves the file as it was, if it doesn't fit."""
        data, written = lines.encode(), 0
        try:
            while written < len(data):  # after a write that is cut short, the next says why: a full disk, `ulimit -f`
                written += os.write(self._handle, data[written:])
        except OSError as error:
            if written:
                os.ftruncate(self._handle, os.fstat(self._handle).st_size - written)
            raise self._refused(error) from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refused(self, error: OSError) -> RunError:
        return RunError(
            f"{self._path}: cannot be written ({system_reason(error)}); make room there, lift `ulimit -f`, or set "
            "LOGDIR to another disk"
        )
