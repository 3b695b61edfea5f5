"""Find the cores that a process may use, and bind each rank to cores of its own.

A rank gets the cores near its GPU, or its part of the machine's cores. This is the same division as torchrun's
`--numa-binding=exclusive`, but done in the rank itself, so that it works under srun and Kubernetes as well. A rank that
its launcher has bound keeps its cores. Network cards need no binding: NCCL uses the PCI topology to pick the card that
is nearest to the GPU.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

_PROCESS = Path("/proc/self")
_PCI = Path("/sys/bus/pci/devices")
_CPUS = Path("/sys/devices/system/cpu")


def allowed_cores() -> int:
    """Return the number of cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_cores() -> int:
    """Return the number of cores that this process can keep busy: the allowed ones, or fewer if its quota is lower.

    A quota of 2.5 cores gives 2, because a third thread would stop all three for a part of each period. The number is
    at least 1.
    """
    quota, allowed = quota_cores(), allowed_cores()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def threads_per_rank(ranks: int) -> int:
    """Return the number of threads for each of a machine's ranks, as far as one unbound process knows."""
    return max(1, available_cores() // ranks)


def threads_on(cores: int, ranks: int) -> int:
    """Return the number of threads for a rank with `cores` of its own, within its share of the machine's quota."""
    quota = quota_cores()
    return cores if quota is None else max(1, min(cores, int(quota / ranks)))


def nearby_cores(device: torch.device) -> list[int]:
    """Return the cores that this process may use; on a GPU, those of its NUMA node if the system reports it."""
    allowed = by_physical_core(os.sched_getaffinity(0), _siblings)
    if device.type != "cuda":
        return allowed
    gpu: Any = torch.cuda.get_device_properties(device)  # torch's stubs lack its PCI address
    address = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
    try:
        near = core_list((_PCI / address / "local_cpulist").read_text())
    except OSError:  # a container without /sys, or a virtual machine's PCI bus
        return allowed
    return [core for core in allowed if core in near] or allowed


def by_physical_core(cores: Iterable[int], siblings: Callable[[int], set[int]]) -> list[int]:
    """Return cores in an order in which the hardware threads of one physical core are neighbours.

    On most servers, such as a DGX, Linux gives the second threads the second half of the numbers. If cores were divided
    in the order of their numbers, two ranks would share physical cores.
    """
    return sorted(cores, key=lambda core: (min(siblings(core), default=core), core))


def _siblings(core: int) -> set[int]:
    try:
        return core_list((_CPUS / f"cpu{core}" / "topology" / "thread_siblings_list").read_text())
    except OSError:  # a container without /sys
        return {core}


def own_cores(local_rank: int, nearby: Sequence[Sequence[int]]) -> list[int]:
    """Return this rank's part of its nearby cores; ranks of its node with the same nearby cores share them.

    `nearby` holds each local rank's cores. Parts are contiguous and as even as possible; if there are fewer cores than
    ranks, each rank gets all of them.
    """
    cores = list(nearby[local_rank])
    sharing = [rank for rank, others in enumerate(nearby) if list(others) == cores]
    place = sharing.index(local_rank)
    first = place * len(cores) // len(sharing)
    stop = (place + 1) * len(cores) // len(sharing)
    return cores[first:stop] or cores


def bind_threads(cores: Iterable[int], process: Path = _PROCESS) -> None:
    """Bind every thread of this process to these cores; later threads inherit the cores of the one that starts them.

    CUDA has threads of its own by the time that the GPU's place is known, and torch may have some.
    """
    wanted = set(cores)
    for task in (process / "task").iterdir():
        with suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(task.name), wanted)


def core_list(text: str) -> set[int]:
    """Parse Linux's list of cores, such as `0-3,8`."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cores.update(range(int(first), int(last or first) + 1))
    return cores


def quota_cores(process: Path = _PROCESS) -> float | None:
    """Return how many cores' time the control groups of a process allow, such as 1.5; None without a limit.

    `docker --cpus` and Kubernetes' limits set it. In version 2 of cgroups(7) it is in cpu.max, in version 1 in
    cpu.cfs_quota_us. The limits of the groups above a group also apply to it. In a container, the mounted folder may be
    the group itself, whatever path the kernel names.
    """
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
    r"""Return a path of mountinfo unescaped; a blank is \040 there."""
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
    except (OSError, ValueError):  # the group isn't visible here, or it is a root group, which has no limit
        return
