"""Which cores a rank computes on: those near its GPU, or its part of the machine's; no other rank of the node's.

The same division as torchrun's `--numa-binding=exclusive`, but in the rank itself, so that it holds under srun and
Kubernetes as well. A rank whose launcher has bound it already keeps what it was given. Network cards need no
binding: NCCL picks the one nearest to the GPU from the PCI topology.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

_PCI = Path("/sys/bus/pci/devices")
_CPUS = Path("/sys/devices/system/cpu")


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def nearby_cores(device: torch.device) -> list[int]:
    """Cores that this process may use, of those on the device's NUMA node where the system knows it."""
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
    """This rank's part of its nearby cores, which it shares with the ranks of its node that have the same.

    `nearby` holds each local rank's. Contiguous parts, as even as possible; all of them where there are fewer cores
    than ranks that share them.
    """
    cores = list(nearby[local_rank])
    sharing = [rank for rank, others in enumerate(nearby) if list(others) == cores]
    place, parts = sharing.index(local_rank), len(sharing)
    return cores[place * len(cores) // parts : (place + 1) * len(cores) // parts] or cores


def core_list(text: str) -> set[int]:
    """Linux's list of cores, such as `0-3,8`, as numbers."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cores.update(range(int(first), int(last or first) + 1))
    return cores
