"""Run a command of the check: forward its standard error, read its output line by line, kill it at its time limit."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import IO, NamedTuple

from bertbench.common.children import dying_with_us

_DRAIN_S = 5.0
_OURS = "bertbench: "


class CommandEnd(NamedTuple):
    """How a command ended."""

    code: int | None
    """The exit code; None if the time limit was reached."""
    last: str
    """The last line of standard error that begins with our name, or else the last that isn't empty."""


def run_within(
    command: Sequence[str],
    take_line: Callable[[str], None],
    limit_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> CommandEnd:
    """Call `take_line` with each line of standard output when it arrives; at the limit, kill the process group."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=limit_s is not None,
        env=environment, preexec_fn=dying_with_us(),
    )  # fmt: skip
    last = [""]

    def pass_on(line: str) -> None:
        sys.stderr.write(line)
        sys.stderr.flush()
        if line.startswith(_OURS) or not last[0].startswith(_OURS):
            last[0] = line.rstrip() or last[0]

    readers = [
        Thread(target=_read, args=(process.stdout, take_line), daemon=True),
        Thread(target=_read, args=(process.stderr, pass_on), daemon=True),
    ]
    for reader in readers:
        reader.start()
    code: int | None = None
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for reader in readers:
        reader.join(_DRAIN_S)  # processes that it left behind may still hold the pipe open
    return CommandEnd(code, last[0])


def _read(stream: IO[str] | None, take_line: Callable[[str], None]) -> None:
    assert stream is not None
    for line in stream:
        take_line(line)
