"""Open standard streams that a shell closed (`>&-`), and report output that could not be written."""

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

OUTPUT_LOST = 74
"""Exit code if standard output can't be written, as on a full disk: EX_IOERR of sysexits.h."""
READER_GONE = 141
"""Exit code if the reader of a pipe, such as head, closes it early. Shells use this code for SIGPIPE."""


class _Output(io.FileIO):
    """Standard output that remembers its first error, which argparse and others would drop."""

    error: OSError | None = None

    def write(self, data: object, /) -> int:
        """Write some or all of the bytes; return their number. Raises OSError."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            self.error = self.error or error
            raise


class _Messages(io.FileIO):
    """Standard error that drops text that it can't write, because no other stream is left to report that on."""

    def write(self, data: object, /) -> int:
        """Write some or all of the bytes; return the number of bytes that need not be written again."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


def open_standard_streams() -> None:
    """Open /dev/null in place of closed standard streams, and watch standard output for errors.

    Call this before anything opens a file. Otherwise, the file could take a closed stream's number, and child processes
    would print into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - stays open until the process ends
    sys.stdout = _over(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _over(_Messages(2, "w", closefd=False), sys.stderr)


def _over(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """Return a text stream over `raw` with the encoding and the buffering of the stream that it replaces."""
    if not isinstance(before, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
    at_once = before.line_buffering or before.write_through  # the latter: PYTHONUNBUFFERED
    return io.TextIOWrapper(io.BufferedWriter(raw), before.encoding, before.errors, line_buffering=at_once)


def guarded(program: str, run: Callable[[], int]) -> int:
    """Return the exit code of `run`, or another one if its output couldn't be written."""
    code = OUTPUT_LOST
    try:
        try:
            code = run()
        finally:
            sys.stdout.flush()
    except (OSError, SystemExit):  # argparse ends the process after its help
        if output_error() is None:
            raise
    error = output_error()
    if error is None:
        return code
    # Python flushes standard output again at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno == errno.EPIPE:
        return READER_GONE
    print(f"{program}: can't write to standard output ({error.strerror}); free space there", file=sys.stderr)
    return OUTPUT_LOST


def output_error() -> OSError | None:
    """Return the first error on standard output; None if everything was written."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.error if isinstance(raw, _Output) else None
