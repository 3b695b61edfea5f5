"""Let one of several processes do work whose result all of them use; the others wait until it ends or dies."""

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_LOOK_S = 0.05
_SAY_EVERY_S = 30.0


@contextmanager
def one_at_a_time(result: Path, doing: str) -> Iterator[None]:
    """Run the body while no other process runs one for the same `result`; the kernel frees a dead process's lock.

    The body must first check whether `result` exists by now. A process that waits prints `doing` every 30 s. On a file
    system without locks, and in a folder that can't be written, processes don't wait for each other.
    """
    lock = result.with_name(f".{result.name}.lock")
    try:
        stream = lock.open("ab")
    except OSError:
        yield
        return
    with stream:
        _wait_for_turn(stream, doing)
        yield
        with suppress(OSError):  # a process that still waits has it open, and will check for the result
            lock.unlink()


def _wait_for_turn(stream: IO[bytes], doing: str) -> None:
    began = said = time.monotonic()
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOOK_S)
        except OSError:  # no locks here
            return
        now = time.monotonic()
        if now - said >= _SAY_EVERY_S:
            said = now
            print(f"waiting for another process for {now - began:.0f} s: {doing}", file=sys.stderr, flush=True)
