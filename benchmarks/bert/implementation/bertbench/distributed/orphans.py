"""Leave no rank behind: the kernel kills a rank as soon as its launcher is gone, even by SIGKILL.

No process would be left to restart the ranks or close their log, and `--resume auto` may write the same files.
"""

import ctypes
import os
import signal
import sys

LAUNCHER = "BERTBENCH_LAUNCHER_PID"
"""Variable by which a launcher passes its process id to its ranks."""
_ELASTIC_AGENT = "TORCHELASTIC_RUN_ID"  # torch's agent sets it for the ranks that it starts
_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_launcher() -> None:
    """If torch's elastic agent started this process, die by SIGKILL when the launcher does."""
    if _ELASTIC_AGENT in os.environ:
        die_with_parent(int(os.environ.get(LAUNCHER, os.getppid())))


def die_with_parent(parent: int) -> None:
    """Die by SIGKILL when the parent process ends, or now if it has ended; on Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)
