"""End a command's processes and remove its temporary files when it ends, even if SIGKILL ends it.

A command makes one folder for temporary files and puts its path into TMPDIR. Every process that it starts, directly or
not, inherits the variable, so TMPDIR also identifies its descendants. `watcher.py` cleans up after it has ended.

Exit handlers and context managers can't do this, because none of them runs after SIGKILL. Slurm ends commands with that
signal, and so does the kernel when memory runs out. A rank that is left over keeps its GPU's memory and its port, which
makes the next run fail. The kernel's PR_SET_PDEATHSIG only reaches direct children, but descendants are also the
workers of pools, compilers and launchers.
"""

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from getpass import getuser
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import IO, NoReturn

from bertbench.common import watcher
from bertbench.common.errors import StoppedError

LAUNCHER = "BERTBENCH_LAUNCHER_PID"
"""Variable by which a launcher passes its process id to its ranks."""
OUTSIDE = "BERTBENCH_TMPDIR"
"""Variable with the folder for the temporary files of a process that outlives the command."""
_ELASTIC_AGENT = "TORCHELASTIC_RUN_ID"  # torch's agent sets it for the ranks that it starts
_COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_PR_SET_PDEATHSIG = 1  # prctl(2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_watchers: list[IO[bytes]] = []


def begin() -> None:
    """Watch over this process's descendants and temporary files from now on.

    A signal that asks a command to end kills its descendants and raises KeyboardInterrupt with the signal's number. A
    rank that torch's agent started gets its signals from its launcher, and dies with it.
    """
    before = os.environ.setdefault(OUTSIDE, tempfile.gettempdir())
    with suppress(KeyError, OSError):  # the user has no name: then each command compiles again
        os.environ.setdefault(_COMPILED, str(Path(before) / f"torchinductor_{getuser()}"))  # torch's own default
    folder = tempfile.mkdtemp(prefix="bertbench-")
    if _ELASTIC_AGENT in os.environ:
        die_with_parent(int(os.environ.get(LAUNCHER, os.getppid())))
    else:
        for number in obeyed(_ENDING):
            signal.signal(number, partial(_stop, folder))
    command = [sys.executable, "-I", "-S", watcher.__file__, folder]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, env=outside(), start_new_session=True)
    assert process.stdin is not None
    _watchers.append(process.stdin)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _stop(folder: str, number: int, frame: FrameType | None) -> NoReturn:
    Thread(target=_kill_until_the_end, args=(folder,), daemon=True).start()
    interrupt = KeyboardInterrupt(number)
    if _importing(frame):
        os._exit(report_signal(interrupt))
    raise interrupt


def _kill_until_the_end(folder: str) -> NoReturn:
    """Keep killing children, as other threads may start more; exit handlers and contexts would wait for them."""
    while True:
        watcher.kill_descendants(folder)
        time.sleep(watcher.LOOK_S)


def _importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported: libraries then take any exception to mean that a module is missing."""
    while frame and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def report_signal(interrupt: KeyboardInterrupt) -> int:
    """Print which signal ended this command, and return its exit code."""
    number = signal.Signals(*interrupt.args or [signal.SIGINT])
    print(f"bertbench: {StoppedError.SIGN} {number.name}", file=sys.stderr, flush=True)
    return 128 + number


def obeyed(numbers: Iterable[signal.Signals]) -> Iterator[signal.Signals]:
    """Yield the signals that this process obeys: nohup, for example, starts a process that ignores SIGHUP."""
    return (number for number in numbers if signal.getsignal(number) != signal.SIG_IGN)


def remove_at_end(path: Path) -> None:
    """Remove a file or folder when this command ends, if it is still there."""
    for stream in _watchers:
        with suppress(BrokenPipeError):
            stream.write(os.fsencode(path.absolute()) + b"\0")


def outside() -> dict[str, str]:
    """Return the environment for a process that may outlive this command."""
    environment = dict(os.environ)
    environment["TMPDIR"] = environment.pop(OUTSIDE, tempfile.gettempdir())
    return environment


def die_with_parent(parent: int) -> None:
    """Die by SIGKILL when the parent process ends, or now if it has ended; on Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before prctl took effect
        os.kill(os.getpid(), signal.SIGKILL)
