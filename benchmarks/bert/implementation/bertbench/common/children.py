"""Let every process that we start end when the process that started it ends, even by SIGKILL.

A rank that is left over keeps its GPU's memory and its port, which makes the next run fail. No handler runs after
SIGKILL, by which Slurm ends commands, and the kernel when memory runs out. So each child asks the kernel for a signal
at its parent's death. The kernel forgets the request at a fork, so each generation asks for itself. A process of ours
asks when its imports are done; if its parent has ended by then, it ends, too.

Not covered are children of other programs, such as g++ and torch's compile workers: after SIGKILL, they end with what
they are compiling. Temporary files are removed only by commands that end in another way.
"""

import atexit
import ctypes
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bertbench.common.errors import StoppedError

AGENT = "TORCHELASTIC_RUN_ID"
"""Variable that torch's elastic agent, in torchrun or in `bertbench launch`, sets for the ranks that it starts."""
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Variable with the file in which the agent looks for a rank's cause, in its launcher's temporary folder."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1  # prctl(2)
_C_LIBRARY = ctypes.CDLL(None)  # loaded here, because a child must not load anything between fork and exec
_TRACKER = b"multiprocessing.resource_tracker"  # ends after the processes that use it, and removes their semaphores


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Let this process get a signal when the process `parent`, which started it, ends, or now if it has ended.

    The kernel sends the signal when the thread that started this process ends. So start lasting processes from the main
    thread, and others from a thread that waits for them. Works on Linux only.
    """
    if sys.platform != "linux":
        return
    _C_LIBRARY.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before prctl took effect
        os.kill(os.getpid(), number)


def dying_with_us(number: int = signal.SIGKILL) -> Callable[[], None]:
    """Return what subprocess takes as `preexec_fn`, so that the program gets a signal when this process ends."""
    return partial(die_with_parent, os.getpid(), number)


def temporary_folder() -> str:
    """Make a folder that is removed when this process ends, or when a command above it kills it.

    Its name has the process's number, by which the command finds it.
    """
    folder = tempfile.mkdtemp(prefix=_folder_prefix(os.getpid()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _folder_prefix(process: int | str) -> str:
    return f"bertbench-{process}-"


def begin() -> None:
    """Take over this process for one command: a signal that asks it to end also ends its children.

    Such a signal kills all descendants and raises KeyboardInterrupt with the signal's number. A signal that comes while
    Python is ending changes nothing any more: the exit code still says how the command ended. A rank that torch's agent
    started gets its signals from its launcher, and dies with it.
    """
    if AGENT in os.environ:
        die_with_parent(_launcher())
    else:
        handled = [*obeyed(_ENDING)]
        for number in handled:
            signal.signal(number, _stop)
        atexit.register(_ignore, handled)  # the first to be registered is the last to be called


def _ignore(numbers: Iterable[signal.Signals]) -> None:
    """Ignore signals. Python, as it ends, removes our handlers, and a signal would then kill the process."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _launcher() -> int:
    """Return the process that started this rank: torchrun, or the launcher whose number its temporary folder has."""
    ours = re.search(_folder_prefix(r"(\d+)"), os.environ.get(ERROR_FILE, ""))
    return int(ours[1]) if ours else os.getppid()


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    _kill_descendants(os.getpid())  # contexts and exit handlers would wait for them
    interrupt = KeyboardInterrupt(number)
    if _importing(frame):
        os._exit(report_signal(interrupt))
    raise interrupt


def _kill_descendants(process: int) -> None:
    for child in child_processes(process):
        with suppress(OSError):  # it has ended
            if _TRACKER not in Path(f"/proc/{child}/cmdline").read_bytes():
                _kill_descendants(child)
                os.kill(child, signal.SIGKILL)
                _remove_folders(child)


def _remove_folders(process: int) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_folder_prefix(process)}*"):
        shutil.rmtree(folder, ignore_errors=True)


def child_processes(process: int) -> list[int]:
    """Return the children of a process, from Linux's list of them, so that other processes needn't be examined."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def _importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported: libraries then take any exception to mean that a module is missing."""
    while frame and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def on_first_node() -> bool:
    """Return whether this is the only node of a job, or the first by torchrun's variable."""
    return os.environ.get("PET_NODE_RANK", "0") == "0"


def on_first_rank() -> bool:
    """Return whether this is the first of the ranks that torchrun started on this node, or no such rank."""
    return AGENT not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0"


def report_signal(interrupt: KeyboardInterrupt) -> int:
    """Print which signal ended this command, and return its exit code.

    On another node than the first, the code is 0: srun stops all when one fails, and then the code of that one counts.
    """
    number = signal.Signals(*interrupt.args or [signal.SIGINT])
    print(f"bertbench: {StoppedError.SIGN} {number.name}", file=sys.stderr, flush=True)
    return 128 + number if on_first_node() else 0


def obeyed(numbers: Iterable[signal.Signals]) -> Iterator[signal.Signals]:
    """Yield the signals that this process obeys: nohup, for example, starts a process that ignores SIGHUP."""
    return (number for number in numbers if signal.getsignal(number) != signal.SIG_IGN)
