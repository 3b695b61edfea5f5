"""Append whole lines to a file: a line that doesn't fit on the disk isn't written at all."""

import os
from pathlib import Path
from typing import Self

from bertbench.common.errors import RunError, system_reason


class LineFile:
    """Appends text to a file, immediately and either completely or not at all; without a path, it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        """Raise RunError if the file can't be opened."""
        self._path = path
        try:
            self._handle = os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise self._refused(error) from error

    def append(self, lines: str) -> None:
        """Append text that ends with a newline. If it doesn't fit, raise RunError and leave the file unchanged."""
        data, written = lines.encode(), 0
        try:
            while written < len(data):  # a write that follows a short one raises the reason: full disk, `ulimit -f`
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
