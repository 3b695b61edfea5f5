"""What a machine could do at best: the rate of its matrix products, and the memory that work takes."""

import time
from pathlib import Path

import torch

_SIZES = (1024, 2048)
_LARGE_ON_GPU = 8192
_CLEAR_PEAK = "5"  # proc(5), /proc/pid/clear_refs: the peak of the resident set begins anew


class MatrixProducts:
    """The best rate of square products seen so far, per number format; call it now and then between measurements."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sizes = (*_SIZES, _LARGE_ON_GPU) if device.type == "cuda" else _SIZES
        self.flops: dict[torch.dtype, float] = {}
        """Floating-point operations a second."""

    def try_again(self, dtype: torch.dtype) -> None:
        """Multiply once more in each size."""
        for size in self._sizes:
            left, right = (torch.randn(size, size, device=self._device).to(dtype) for _ in range(2))
            wait(self._device)
            began = time.perf_counter()
            left @ right
            wait(self._device)
            rate = 2 * size**3 / (time.perf_counter() - began)
            self.flops[dtype] = max(rate, self.flops.get(dtype, 0.0))


def reset_peak(device: torch.device) -> None:
    """Let `peak_bytes` begin anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def peak_bytes(device: torch.device) -> int:
    """The most memory since then: of this process on a CPU, of its tensors on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def wait(device: torch.device) -> None:
    """Until the device has done everything it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
