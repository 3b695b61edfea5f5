"""Find the GPUs of a node and their health by NVIDIA's management library."""

from collections.abc import Callable
from typing import Any

import pynvml

_GIB = 2**30
# More belongs to other processes: our ranks hold only a context (0.5 GiB) and NCCL's buffers yet.
_OTHERS_GIB = 5
_SLOWED = {
    "nvmlClocksEventReasonHwSlowdown": "the hardware slows it down",
    "nvmlClocksEventReasonHwThermalSlowdown": "it is too hot",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "its power supply slows it down",
    "nvmlClocksEventReasonSwThermalSlowdown": "the driver slows it down, because it is too hot",
}


def nvidia_gpus() -> list[Any]:
    """Return the library's handle of each GPU, for further questions to `pynvml`; none without a driver."""
    try:
        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def ask_driver(question: Callable[..., Any], *arguments: Any) -> Any:
    """Return the library's answer, or None if this kind of GPU has none."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def gpus_and_problems() -> tuple[list[str], list[str]]:
    """Return model, memory and driver of each GPU of this node, and what is wrong with them, a line each.

    The former should be the same on all nodes.
    """
    gpus = nvidia_gpus()
    driver = ask_driver(pynvml.nvmlSystemGetDriverVersion)
    kinds = []
    for gpu in gpus:
        memory = ask_driver(pynvml.nvmlDeviceGetMemoryInfo, gpu)
        size = f"{memory.total / _GIB:.0f} GiB" if memory else "unknown memory"
        kinds.append(f"{ask_driver(pynvml.nvmlDeviceGetName, gpu) or 'unknown model'}, {size}, driver {driver}")
    return kinds, [f"GPU {index}: {what}" for index, gpu in enumerate(gpus) for what in _sick(gpu)]


def _sick(gpu: Any) -> list[str]:
    problems = []
    errors = ask_driver(
        pynvml.nvmlDeviceGetTotalEccErrors, gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    )
    if errors:
        problems.append(f"{errors} uncorrected memory errors since its start")
    rows = ask_driver(pynvml.nvmlDeviceGetRemappedRows, gpu)  # corrected, uncorrected, is pending, has failed
    if rows and rows[2]:
        problems.append("memory rows wait for remapping; reset it")
    if rows and rows[3]:
        problems.append("memory rows could not be remapped; replace it")
    reasons = ask_driver(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu) or 0
    problems += [text for name, text in _SLOWED.items() if reasons & getattr(pynvml, name)]
    memory = ask_driver(pynvml.nvmlDeviceGetMemoryInfo, gpu)
    if memory is None:
        problems.append("the driver doesn't know its memory; see `nvidia-smi`, it may have fallen off the bus")
    elif (used := memory.used / _GIB) > _OTHERS_GIB:
        problems.append(f"{used:.0f} GiB of its memory are in use; end the processes that use it (nvidia-smi)")
    return problems
