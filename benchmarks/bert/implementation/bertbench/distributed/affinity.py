"""Bind each rank to cores of its own: those near its GPU, or its part of the machine's.

The same division as torchrun's `--numa-binding=exclusive`, but in the rank itself, so that it holds under srun and
Kubernetes as well. A rank that its launcher has bound keeps its cores. Network cards need no
binding: NCCL picks the one nearest to the GPU from the PCI topology.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from bertbench.distributed.quota import quota_cores

_PCI = Path("/sys/bus/pci/devices")
_CPUS = Path("/sys/devices/system/cpu")


def allowed_cores() -> int:
    """Return the number of cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_cores() -> int:
    """Return the number of cores that this process can keep busy: those allowed, or fewer by its quota of time.

    A quota of 2.5 cores gives 2: a third thread would stop all three for a part of each period. At least 1.
    """
    quota, allowed = quota_cores(), allowed_cores()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def threads_per_rank(ranks: int) -> int:
    """Return the threads of each of a machine's ranks, as far as one process knows: its launcher may bind each."""
    return max(1, available_cores() // ranks)


def threads_on(cores: int, ranks: int) -> int:
    """Return the threads of one of `ranks` on a machine that has `cores` to itself, within its share of the quota."""
    quota = quota_cores()
    return cores if quota is None else max(1, min(cores, int(quota / ranks)))


def nearby_cores(device: torch.device) -> list[int]:
    """Return the cores that this process may use; on a GPU, those of its NUMA node if the system reports it."""
    allowed = by_physical_core(os.sched_getaffinity(0), _siblings)
    if device.type != "cuda":
        return allowed
    gpu: Any = torch.cuda.get_device_properties(device)  # torch's stubs leave its PCI address out
    address = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
    try:
        near = core_list((_PCI / address / "local_cpulist").read_text())
    except OSError:  # a container without /sys, or a virtual machine's PCI bus
        return allowed
    return [core for core in allowed if core in near] or allowed


def by_physical_core(cores: Iterable[int], siblings: Callable[[int], set[int]]) -> list[int]:
    """Return cores in an order in which the hardware threads of one physical core are neighbours.

    Linux numbers second threads in the second half on most servers, a DGX among them: in the order of numbers, two
    ranks would share physical cores.
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
    place, parts = sharing.index(local_rank), len(sharing)
    return cores[place * len(cores) // parts : (place + 1) * len(cores) // parts] or cores


def core_list(text: str) -> set[int]:
    """Parse Linux's list of cores, such as `0-3,8`."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cores.update(range(int(first), int(last or first) + 1))
    return cores
