"""Find out whether the kernel killed a process for lack of memory. SIGKILL alone doesn't say who sent it.

The kernel counts such kills for each control group and for the whole machine: see cgroup-v2.rst (memory.events) and
proc(5) (/proc/vmstat).
"""

from contextlib import suppress
from pathlib import Path


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel has killed so far in this process's control group and in groups below it.

    If the kernel doesn't count per group, return the count of the container or of the whole machine; 0 if there is no
    count at all. `root` is the root of the file system.
    """
    control = root / "sys/fs/cgroup"
    files = [control / "memory.events", root / "proc/vmstat"]
    with suppress(OSError):  # in a container the path may be the host's, and the mount the container's own group
        group = (root / "proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        files.insert(0, control / group / "memory.events")
    for file in files:
        with suppress(OSError, LookupError):  # LookupError: a kernel before Linux 4.13
            counts = dict(line.split(maxsplit=1) for line in file.read_text().splitlines())
            return int(counts["oom_kill"])
    return 0
