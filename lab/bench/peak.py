"""Measure the peak rate of a machine's matrix products, and the peak memory of a piece of work."""

from pathlib import Path

import torch

from bertbench.machine.peak_rate import square_product_flops

SQUARE_SIZES = (1024, 2048)
_LARGE_ON_GPU = 8192
_CLEAR_PEAK = "5"  # resets the peak of the resident set: see proc(5), /proc/pid/clear_refs


def square_flops(dtype: torch.dtype, device: torch.device) -> float:
    """Return the highest rate, in operations per second, that large square products reach on this device."""
    sizes = (*SQUARE_SIZES, _LARGE_ON_GPU) if device.type == "cuda" else SQUARE_SIZES
    return square_product_flops(dtype, device, sizes)


def reset_peak(device: torch.device) -> None:
    """Reset the peak that `peak_bytes` returns."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what earlier work left reserved would count
        torch.cuda.reset_peak_memory_stats(device)
    else:
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def peak_bytes(device: torch.device) -> int:
    """Return the peak memory since `reset_peak`: of this process on a CPU, reserved for its tensors on a GPU.

    Reserved memory includes what CUDA graphs keep for themselves while no tensor is in it.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
