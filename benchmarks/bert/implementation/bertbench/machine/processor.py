"""Name this machine's processor, and find its GPUs by NVIDIA's management library."""

import platform
from pathlib import Path
from typing import Any

import pynvml


def processor() -> str:
    """Return the name of the processor, as far as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def nvidia_gpus() -> list[Any]:
    """Return the library's handle of each GPU, for further questions to `pynvml`; none without a driver."""
    try:
        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
