"""Find out whether the kernel killed a process for lack of memory: SIGKILL alone doesn't name its sender.

The kernel counts such kills for each control group, and for the machine: see cgroup-v2.rst (memory.events), cgroup-v1's
memory.rst (memory.oom_control) and proc(5) (/proc/vmstat).
"""

from collections.abc import Iterator
from pathlib import Path


class OutOfMemoryKills:
    """Count kills from the creation of this object on; `root` is the root of the file system."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._counter = next(_counters(root), None)
        self._before = self._count()

    def any(self) -> bool:
        """Return whether there was a kill since then, in this process's control group or below it."""
        return self._count() > self._before

    def _count(self) -> int:
        try:
            return _oom_kills(self._counter) if self._counter else 0
        except OSError:  # the group was removed
            return 0


def _counters(root: Path) -> Iterator[Path]:
    """Yield the files that count kills, narrowest first: of this process's group, a container, the whole machine."""
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
    for file in [*candidates, root / "proc/vmstat"]:
        try:
            _oom_kills(file)
        except (OSError, LookupError):
            continue
        yield file


def _oom_kills(file: Path) -> int:
    """Read a count. Raises LookupError if the kernel has none (before Linux 4.13)."""
    counts = dict(line.split(maxsplit=1) for line in file.read_text().splitlines())
    return int(counts["oom_kill"])
