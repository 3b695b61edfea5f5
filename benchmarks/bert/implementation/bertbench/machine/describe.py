"""Describe this machine in MLPerf's 33 fields, and compare it with a system file.

The facts come from /proc, /sys and NVIDIA's management library. Some fields stay blank: those that only root can read
(memory modules), those that depend on where a run's data is stored (storage), and those that no machine reports
(cooling, topology, submitter).
"""

import os
import platform
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pynvml

from bertbench.common.errors import RunError
from bertbench.config.sections import Hardware
from bertbench.machine.gpus import ask_driver, visible_gpus
from bertbench.machine.processor import cores, processor
from bertbench.machine.provenance import software

_SYS = Path("/sys")
_GIB = 2**30


def describe() -> dict[str, str]:
    """Return every field of an MLPerf system description by name; empty if the machine doesn't report it."""
    fields = {**_processors(), **_memory_and_network(), **accelerators(), **software()}
    names = [field.alias or name for name, field in Hardware.model_fields.items()]
    return {name: fields.get(name, "") for name in names} | {"number_of_nodes": "1"}


def hardware_differences(promised: Hardware) -> list[str]:
    """Return a line for each difference between this node and its system file.

    Raises RunError if the node has fewer GPUs than the file states: the run couldn't match its file.
    """
    present = {**_processors(), **accelerators()}
    said = promised.description()
    gpus = int(present.get("accelerators_per_node", "0"))
    if gpus < promised.accelerators_per_node:
        remedy = "use a system with fewer GPUs, or find out why the others are missing"
        if not gpus:
            remedy = "use a CPU system such as cpu_demo, or find out why they are missing"
        raise RunError(
            f"{platform.node()}: found {gpus} GPUs, the system file states {promised.accelerators_per_node} per node; "
            f"{remedy} (nvidia-smi, CUDA_VISIBLE_DEVICES)"
        )
    return [
        f"{platform.node()}: found {name} {value!r}, the system file says {said[name]!r}"
        for name, value in present.items()
        if name in _COMPARED and value and said[name] and not _alike(value, said[name])
    ]


_COMPARED = {
    "host_processors_per_node", "host_processor_model_name", "host_processor_core_count",
    "accelerators_per_node", "accelerator_model_name",
}  # fmt: skip


def _alike(first: str, second: str) -> bool:
    """Return whether two names match. One may contain more words, such as `64-Core Processor` or a wattage."""
    first = first.lower()
    second = second.lower()
    if first.isdigit() or second.isdigit():
        return first == second
    return first in second or second in first


def _processors() -> dict[str, str]:
    cpus = cores()
    if not cpus:
        return {}
    sockets = {cpu.get("physical id", "0") for cpu in cpus}
    return {
        "host_processors_per_node": str(len(sockets)),
        "host_processor_model_name": processor(),
        "host_processor_core_count": cpus[0].get("cpu cores", ""),
        "host_processor_vcpu_count": cpus[0].get("siblings", ""),
        "host_processor_caches": ", ".join(_caches()),
    }


def _caches() -> Iterable[str]:
    for folder in sorted((_SYS / "devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(folder / name) for name in ("level", "type", "size"))
        if level and size:
            yield f"L{level} {kind.lower()} {size}"


def _memory_and_network() -> dict[str, str]:
    total = re.search(r"^MemTotal: +(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    counts = Counter(_network_ports())
    return {
        "host_memory_capacity": f"{int(total[1]) * 1024 / _GIB:.0f} GiB" if total else "",
        "host_networking": ", ".join(f"{count}x {kind}" for kind, count in counts.items()),
    }


def _network_ports() -> Iterable[str]:
    """Yield the kind and the rate of each network port for which the kernel states both."""
    for port in sorted((_SYS / "class/infiniband").glob("*/ports/*")):
        rate = _read(port / "rate")
        if rate:
            yield f"InfiniBand {rate}"
    for card in sorted((_SYS / "class/net").glob("*")):
        mbit = _read(card / "speed")
        if (card / "device").exists() and mbit.isdigit():
            yield f"Ethernet {int(mbit) / 1000:g} Gb/s"


def accelerators() -> dict[str, str]:
    """Return the fields that describe the GPUs that CUDA_VISIBLE_DEVICES allows.

    A field is empty where the driver doesn't report it. Without such GPUs there are no fields.
    """
    gpus = visible_gpus()
    if not gpus:
        return {}
    gpu, links = gpus[0], 0
    while links < pynvml.NVML_NVLINK_MAX_LINKS and ask_driver(pynvml.nvmlDeviceGetNvLinkState, gpu, links):
        links += 1
    generation, width = (
        ask_driver(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu),
        ask_driver(pynvml.nvmlDeviceGetMaxPcieLinkWidth, gpu),
    )
    clock = ask_driver(pynvml.nvmlDeviceGetMaxClockInfo, gpu, pynvml.NVML_CLOCK_SM)
    memory = ask_driver(pynvml.nvmlDeviceGetMemoryInfo, gpu)
    return {
        "accelerators_per_node": str(len(gpus)),
        "accelerator_model_name": ask_driver(pynvml.nvmlDeviceGetName, gpu) or "",
        "accelerator_host_interconnect": f"PCIe {generation}.0 x{width}" if generation and width else "",
        "accelerator_frequency": f"{clock} MHz" if clock else "",
        "accelerator_memory_capacity": f"{memory.total / _GIB:.0f} GiB" if memory else "",
        "accelerator_interconnect": f"{links} NVLinks" if links else "",
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip() if os.access(path, os.R_OK) else ""
    except OSError:  # some files of /sys exist but can't be read
        return ""
