"""Clean up after a command: a program that waits for its end, kills its descendants and removes its temporary files.

`children.py` starts one for every command. Its standard input is a pipe that only the command holds open, so it notices
when the command ends, whatever the cause, even SIGKILL. It imports little, so that it starts within milliseconds.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.05
_MOST_LOOKS = 200  # 10 s, for processes that the kernel can't end at once
_TRACKER = b"multiprocessing.resource_tracker"  # ends after the processes that use it, and removes their semaphores


def kill_descendants(folder: str) -> None:
    """Kill every process that was started with TMPDIR in `folder`, and those that they start meanwhile; Linux only."""
    for _ in range(_MOST_LOOKS):
        processes = list(_descendants(os.fsencode(folder)))
        if not processes:
            return
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(LOOK_S)


def _descendants(folder: bytes) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            entries = (process / "environ").read_bytes().split(b"\0")
            inherits_folder = any(entry.partition(folder)[:2] == (b"TMPDIR=", folder) for entry in entries)
            if inherits_folder and _TRACKER not in (process / "cmdline").read_bytes():
                yield int(process.name)


def main(folder: str) -> None:
    """Wait for the command's end; then remove `folder`, and the paths read from standard input, separated by zeros."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are for the command
        signal.signal(number, signal.SIG_IGN)
    paths = [folder, *filter(None, os.fsdecode(sys.stdin.buffer.read()).split("\0"))]
    kill_descendants(folder)
    time.sleep(LOOK_S)  # a process that was just being forked had the command's own environment
    kill_descendants(folder)
    import shutil  # noqa: PLC0415 - a watcher may be idle for days: keep it small

    for path in paths:
        for _ in range(_MOST_LOOKS):
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):
                Path(path).unlink()
            if not os.path.lexists(path):
                break
            time.sleep(LOOK_S)


if __name__ == "__main__":
    main(sys.argv[1])
