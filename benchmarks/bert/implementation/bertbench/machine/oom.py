"""Find out whether the kernel killed a process for lack of memory: SIGKILL alone doesn't name its sender.

The kernel counts such kills for each control group, and for the machine: see cgroup-v2.rst (memory.events), cgroup-v1's
memory.rst (memory.oom_control) and proc(5) (/proc/vmstat).
"""

from contextlib import suppress
from pathlib import Path


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel has killed so far in this process's control group or below it.

    Where that isn't counted, of the container or the whole machine; 0 where nothing is. `root` is that of the files.
    """
    for file in _counters(root):
        with suppress(OSError, LookupError):  # LookupError: a kernel before Linux 4.13
            counts = dict(line.split(maxsplit=1) for line in file.read_text().splitlines())
            return int(counts["oom_kill"])
    return 0


def _counters(root: Path) -> list[Path]:
    """Return the files that may count kills, narrowest first: of this process's group, a container, the machine."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        groups = []
    control = root / "sys/fs/cgroup"
    candidates = []
    for _, controllers, path in (group.split(":", 2) for group in groups):
        if "memory" in controllers.split(","):
            mount, name = control / "memory", "memory.oom_control"
        elif not controllers:
            mount, name = control, "memory.events"
        else:
            continue
        # in a container the path may be the host's, the mount the container's own group
        candidates += [mount / path.lstrip("/") / name, mount / name]
    return [*candidates, root / "proc/vmstat"]
