"""Read the processor time that this process's control group may use, as `docker --cpus` and Kubernetes' limits set it.

cgroups(7): version 2 has cpu.max, version 1 cpu.cfs_quota_us; a group is also bound by those above it. Inside a
container the mounted folder may be the group itself, whatever path the kernel names.
"""

import re
from collections.abc import Iterator
from pathlib import Path

_PROCESS = Path("/proc/self")


def quota_cores(process: Path = _PROCESS) -> float | None:
    """Return how many cores' time the control groups of a process allow, such as 1.5; None without a limit."""
    try:
        groups = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:  # not Linux
        return None
    limits = [limit for group in groups for folder in _folders(group, mounts) for limit in _limits(folder)]
    return min(limits, default=None)


def _folders(group: str, mounts: list[str]) -> Iterator[Path]:
    """Yield the folders of a group and of those above it; `group` is a line of proc's cgroup: `4:cpu,cpuacct:/job`."""
    _, controllers, path = group.split(":", maxsplit=2)
    if controllers and "cpu" not in controllers.split(","):
        return
    kind = "cgroup" if controllers else "cgroup2"
    for mount in mounts:
        # proc_pid_mountinfo(5): 36 35 98:0 /root /mount/point options ... - type source options
        left, _, right = mount.partition(" - ")
        _, _, _, root, point, *_ = left.split(" ")
        found_kind, _, options = right.split(" ", maxsplit=2)
        if found_kind != kind or (controllers and "cpu" not in options.split(",")):
            continue
        top = Path(_unescaped(point))
        below = Path(path.removeprefix(_unescaped(root).rstrip("/")).lstrip("/"))
        yield from (top / part for part in (below, *below.parents))


def _unescaped(text: str) -> str:
    r"""Return a path of mountinfo, in which a blank is \040."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], base=8)), text)


def _limits(folder: Path) -> Iterator[float]:
    """Yield the limit that a group's folder holds, if any."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if quota != "max" and int(quota) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError):  # no such group in sight, or a root group, which has no limit
        return
