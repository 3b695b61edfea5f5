"""Find the GPUs of a node and their health by NVIDIA's management library."""

from typing import Any

import pynvml

from bertbench.machine.processor import asked, nvidia_gpus

_GIB = 2**30
# More belongs to other processes: our ranks hold only a context (0.5 GiB) and NCCL's buffers yet.
_OTHERS_GIB = 5
_SLOWED = {
    "nvmlClocksEventReasonHwSlowdown": "the hardware slows it down",
    "nvmlClocksEventReasonHwThermalSlowdown": "it is too hot",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "its power supply slows it down",
    "nvmlClocksEventReasonSwThermalSlowdown": "the driver slows it down, because it is too hot",
}


def gpus_and_problems() -> tuple[list[str], list[str]]:
    """Return model, memory and driver of each GPU of this node, and what is wrong with them, a line each.

    The former should be the same on all nodes.
    """
    gpus = nvidia_gpus()
    driver = asked(pynvml.nvmlSystemGetDriverVersion)
    kinds = []
    for gpu in gpus:
        memory = asked(pynvml.nvmlDeviceGetMemoryInfo, gpu)
        size = f"{memory.total / _GIB:.0f} GiB" if memory else "unknown memory"
        kinds.append(f"{asked(pynvml.nvmlDeviceGetName, gpu) or 'unknown model'}, {size}, driver {driver}")
    return kinds, [f"GPU {index}: {what}" for index, gpu in enumerate(gpus) for what in _sick(gpu)]


def _sick(gpu: Any) -> list[str]:
    found = []
    errors = asked(
        pynvml.nvmlDeviceGetTotalEccErrors, gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    )
    if errors:
        found.append(f"{errors} uncorrected memory errors since its start")
    rows = asked(pynvml.nvmlDeviceGetRemappedRows, gpu)  # corrected, uncorrected, is pending, has failed
    if rows and rows[2]:
        found.append("memory rows wait for remapping; reset it")
    if rows and rows[3]:
        found.append("memory rows could not be remapped; replace it")
    reasons = asked(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu) or 0
    found += [text for name, text in _SLOWED.items() if reasons & getattr(pynvml, name)]
    memory = asked(pynvml.nvmlDeviceGetMemoryInfo, gpu)
    if memory is None:
        found.append("the driver doesn't know its memory; see `nvidia-smi`, it may have fallen off the bus")
    elif (used := memory.used / _GIB) > _OTHERS_GIB:
        found.append(f"{used:.0f} GiB of its memory are in use; end the processes that use it (nvidia-smi)")
    return found
