"""Measure a machine's peak: the rate of its matrix products, and the memory of a piece of work."""

from functools import partial
from pathlib import Path

import torch

from bertbench.model.linear import Library, forward_product, onednn_multiplies
from lab.bench.harness import milliseconds

_SIZES = (1024, 2048)
_LARGE_ON_GPU = 8192
_ROUNDS = 5
_CLEAR_PEAK = "5"  # proc(5), /proc/pid/clear_refs: resets the peak of the resident set


def square_flops(dtype: torch.dtype, device: torch.device) -> float:
    """Return the most floating-point operations a second that products of large squares reach.

    On a CPU by the faster library, torch's (MKL for fp32) or oneDNN. Small products run from cache, at 189 GFLOP/s on a
    Xeon whose large ones run at 110.
    """
    has_onednn = device.type == "cpu" and onednn_multiplies(dtype)
    libraries: list[Library] = ["torch", "onednn"] if has_onednn else ["torch"]
    best = 0.0
    for size in (*_SIZES, _LARGE_ON_GPU) if device.type == "cuda" else _SIZES:
        left, weight = torch.randn(2, size, size, device=device).to(dtype)
        multiply = partial(forward_product, left, weight, torch.zeros_like(left[0]))
        fastest_ms = min(milliseconds(partial(multiply, library), device) for library in _ROUNDS * libraries)
        best = max(best, 2.0 * size**3 / fastest_ms * 1e3)
    return best


def reset_peak(device: torch.device) -> None:
    """Reset `peak_bytes`."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def peak_bytes(device: torch.device) -> int:
    """Return the peak memory since `reset_peak`: of this process on a CPU, of its tensors on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
