"""Open standard streams that a shell closed (`>&-`), and name an answer that standard output couldn't take."""

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

OUTPUT_LOST = 74
"""Exit code if standard output can't be written, as on a full disk: EX_IOERR of sysexits.h."""
READER_GONE = 141
"""Exit code if the reader of a pipe, such as head, closes it early: a shell's code for SIGPIPE."""


class _Output(io.FileIO):
    """Standard output, which remembers the first error: argparse and others drop it."""

    error: OSError | None = None

    def write(self, data: object, /) -> int:
        """Write some or all of the bytes; return their number. Raises OSError."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            self.error = self.error or error
            raise


class _Messages(io.FileIO):
    """Standard error, which drops what it can't write: no stream is left that could tell a person."""

    def write(self, data: object, /) -> int:
        """Write some or all of the bytes; return how many need not be written again."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


def open_standard_streams() -> None:
    """Open /dev/null in place of closed standard streams, and watch how standard output is written.

    Call it before anything opens a file: a file in a stream's place would receive what children print.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a number, open until the process ends
    sys.stdout = _over(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _over(_Messages(2, "w", closefd=False), sys.stderr)


def _over(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """Return a text stream over `raw` that encodes and waits as the one before it did."""
    if not isinstance(before, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)
    at_once = before.line_buffering or before.write_through  # the latter: PYTHONUNBUFFERED
    return io.TextIOWrapper(io.BufferedWriter(raw), before.encoding, before.errors, line_buffering=at_once)


def guarded(program: str, run: Callable[[], int]) -> int:
    """Return the exit code of `run`, or another one if standard output couldn't take all that it printed."""
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
    # Python flushes standard output once more at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno == errno.EPIPE:
        return READER_GONE
    print(f"{program}: standard output can't be written ({error.strerror}); make room there", file=sys.stderr)
    return OUTPUT_LOST


def output_error() -> OSError | None:
    """Return the first error of standard output; None if it took all that was printed."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.error if isinstance(raw, _Output) else None
