"""Read how much of its processors, of its device and of their memory a rank uses."""

import resource
import sys
import time
from pathlib import Path

import torch

from bertbench.machine.gpus import share_busy, visible_gpus

_GB = 1e9
_PAGES = Path("/proc/self/statm")  # Linux only
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # getrusage(2) counts in bytes or in KiB

Use = dict[str, float]
"""Use by the name of its field in metrics.jsonl; what can't be read is left out."""


class ResourceUse:
    """The use of one rank, on a CPU or on a CUDA device.

    `cores_busy` is the processor time of the rank's process, in all its threads, over the time since the last reading,
    or since `start`. `device_busy` is the driver's `share_busy` of the GPU. `memory_gb` and `peak_memory_gb` are 10^9
    bytes: on CUDA those that torch has reserved, on a CPU those of the process, both now and at most so far.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._gpu = _handle(device) if device.type == "cuda" else None
        self.start()

    def start(self) -> None:
        """Count the processor time from now on."""
        self._read_at = time.perf_counter()
        self._processor_s = time.process_time()

    def read(self) -> Use:
        """Return the use now; cheap enough for every step on a CPU (about 10 us)."""
        used_s = time.process_time() - self._processor_s
        use = {"cores_busy": used_s / (time.perf_counter() - self._read_at)}
        self.start()
        device_busy = None if self._gpu is None else share_busy(self._gpu)
        if device_busy is not None:
            use["device_busy"] = device_busy
        return {name: round(value, 3) for name, value in (use | self._memory()).items()}

    def _memory(self) -> Use:
        if self._device.type == "cuda":
            now = torch.cuda.memory_reserved(self._device)
            return {"memory_gb": now / _GB, "peak_memory_gb": torch.cuda.max_memory_reserved(self._device) / _GB}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
        if not _PAGES.exists():
            return {"peak_memory_gb": peak / _GB}
        resident = int(_PAGES.read_text().split()[1]) * resource.getpagesize()
        return {"memory_gb": resident / _GB, "peak_memory_gb": max(resident, peak) / _GB}  # the kernel's peak lags


def _handle(device: torch.device) -> object | None:
    """Return the driver's handle of a CUDA device; None if the driver's library doesn't list it."""
    gpus = visible_gpus()
    index = device.index or 0
    return gpus[index] if index < len(gpus) else None
