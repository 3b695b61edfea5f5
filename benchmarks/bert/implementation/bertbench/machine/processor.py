"""Name this machine's processor, and find its GPUs by NVIDIA's management library."""

import platform
from pathlib import Path
from typing import Any

import pynvml

_INSTRUCTIONS = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 with bf16", "avx512f": "AVX-512", "avx2": "AVX2"}


def processor() -> str:
    """Return the name of the processor, as far as the system knows it."""
    return _field("model name") or platform.processor() or platform.machine()


def instructions() -> str | None:
    """Return the widest vector instructions of an x86 processor: two of one name can differ in them."""
    flags = _field("flags").split()
    return next((name for flag, name in _INSTRUCTIONS.items() if flag in flags), None)


def _field(name: str) -> str:
    """Return a field of the first core in Linux's list; empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def nvidia_gpus() -> list[Any]:
    """Return the library's handle of each GPU, for further questions to `pynvml`; none without a driver."""
    try:
        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
