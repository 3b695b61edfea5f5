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


class PeakMemory:
    """The most memory that a piece of work took beyond what there was before it, in bytes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0
        self.bytes = 0

    def __enter__(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
        else:
            Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)
            self._before = _resident("VmRSS")

    def __exit__(self, *_: object) -> None:
        on_gpu = self._device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(self._device) if on_gpu else _resident("VmHWM")
        self.bytes = max(self.bytes, peak - self._before)


def wait(device: torch.device) -> None:
    """Until the device has done everything it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _resident(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])
