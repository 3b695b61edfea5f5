"""Find the GPUs of a node and their health by NVIDIA's management library."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

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


class PresentGpu(NamedTuple):
    """A GPU of this machine, as NVIDIA's driver describes it."""

    model: str
    memory_gib: float
    capability: tuple[int, int]
    """Its CUDA compute capability, such as 9.0 of an H100."""

    @property
    def version(self) -> str:
        """Return the compute capability as NVIDIA writes it."""
        return "{}.{}".format(*self.capability)


def present_gpus() -> list[PresentGpu]:
    """Return the GPUs that a run on this machine may use; none without a driver.

    CUDA_VISIBLE_DEVICES limits them. A GPU is left out if the driver can't tell its memory or compute capability: the
    driver has lost it.
    """
    present = []
    for gpu in visible_gpus():
        memory = ask_driver(pynvml.nvmlDeviceGetMemoryInfo, gpu)
        capability = ask_driver(pynvml.nvmlDeviceGetCudaComputeCapability, gpu)
        if memory is not None and capability is not None:
            model = ask_driver(pynvml.nvmlDeviceGetName, gpu) or "unknown model"
            major, minor = capability
            present.append(PresentGpu(model, memory.total / _GIB, (major, minor)))
    return present


def visible_gpus() -> list[Any]:
    """Return the library's handle of each GPU that CUDA_VISIBLE_DEVICES leaves.

    It names numbers or identifiers, up to one that isn't there.
    """
    gpus = nvidia_gpus()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return gpus
    visible = []
    for name in map(str.strip, names.split(",")):
        if name.isdecimal():
            matching = gpus[int(name) : int(name) + 1]
        else:
            matching = [gpu for gpu in gpus if name and str(ask_driver(pynvml.nvmlDeviceGetUUID, gpu)).startswith(name)]
        if len(matching) != 1:
            break
        visible += matching
    return visible


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
