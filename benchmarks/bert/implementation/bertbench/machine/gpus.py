"""Find the GPUs of a node and their health by NVIDIA's management library."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

_GIB = 2**30
# If more memory is in use, other processes use it: at this point our ranks hold only a context (0.5 GiB) and NCCL's
# buffers.
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
    """Its CUDA compute capability: 9.0 for an H100."""

    @property
    def version(self) -> str:
        """Return the compute capability as NVIDIA writes it."""
        return "{}.{}".format(*self.capability)


def present_gpus() -> list[PresentGpu]:
    """Return the GPUs that a run on this machine may use; none if there is no driver.

    CUDA_VISIBLE_DEVICES limits them. If the driver can't report a GPU's memory or compute capability, it has lost the
    GPU, which is then left out.
    """
    present = []
    for gpu in visible_gpus():
        memory = ask_driver(pynvml.nvmlDeviceGetMemoryInfo, gpu)
        # of a slice, the driver gives no compute capability
        divided_gpu = ask_driver(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, gpu)
        capability = ask_driver(pynvml.nvmlDeviceGetCudaComputeCapability, divided_gpu or gpu)
        if memory is not None and capability is not None:
            model = ask_driver(pynvml.nvmlDeviceGetName, gpu) or "unknown model"
            major, minor = capability
            present.append(PresentGpu(model, memory.total / _GIB, (major, minor)))
    return present


def visible_gpus() -> list[Any]:
    """Return the library's handle of each GPU, or of the slice of a GPU, that CUDA_VISIBLE_DEVICES allows.

    The variable lists numbers or identifiers. CUDA ignores everything after the first entry that names no GPU. A GPU
    that is divided into slices can be used by them alone, and CUDA gives a process only the first (Multi-Instance
    GPU User Guide, CUDA Device Enumeration).
    """
    gpus = nvidia_gpus()
    slices = [mig_slice for gpu in gpus for mig_slice in _slices(gpu)]
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return slices[:1] or gpus
    visible = []
    for name in map(str.strip, names.split(",")):
        if name.isdecimal():
            matching = gpus[int(name) : int(name) + 1]
            matching = [mig_slice for gpu in matching for mig_slice in _slices(gpu)[:1]] or matching
        else:
            matching = [gpu for gpu in (*gpus, *slices) if name and _identifier(gpu).startswith(name)]
        if len(matching) != 1:
            break
        visible += matching
    if any(gpu in slices for gpu in visible):
        return visible[:1]
    return visible


def _identifier(gpu: Any) -> str:
    """Return what CUDA_VISIBLE_DEVICES may call a GPU: GPU-... or, for a slice, MIG-...."""
    return str(ask_driver(pynvml.nvmlDeviceGetUUID, gpu))


def _slices(gpu: Any) -> list[Any]:
    """Return the library's handle of each slice of a GPU; none if it isn't divided (Multi-Instance GPU)."""
    count = ask_driver(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
    handles = [ask_driver(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, number) for number in range(count)]
    return [handle for handle in handles if handle is not None]


def nvidia_gpus() -> list[Any]:
    """Return the library's handle of each GPU, which functions of `pynvml` take; none if there is no driver."""
    try:
        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


def ask_driver(question: Callable[..., Any], *arguments: Any) -> Any:
    """Return the library's answer, or None if this kind of GPU doesn't support the question."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def share_busy(gpu: Any) -> float | None:
    """Return the share of the last second or less in which a kernel ran on a GPU; None if the driver doesn't know.

    Kernels of all programs count.
    """
    rates = ask_driver(pynvml.nvmlDeviceGetUtilizationRates, gpu)
    return None if rates is None else rates.gpu / 100


def gpus_and_problems() -> tuple[list[str], list[str]]:
    """Return a line for each GPU of this node (model, memory, driver), and a line for each problem of a GPU.

    The first list should be the same on all nodes.
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
        problems.append("memory rows wait to be remapped; reset the GPU")
    if rows and rows[3]:
        problems.append("memory rows could not be remapped; replace the GPU")
    reasons = ask_driver(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu) or 0
    problems += [text for name, text in _SLOWED.items() if reasons & getattr(pynvml, name)]
    memory = ask_driver(pynvml.nvmlDeviceGetMemoryInfo, gpu)
    if memory is None:
        problems.append("the driver can't report its memory; run `nvidia-smi`: the GPU may have fallen off the bus")
    elif (used := memory.used / _GIB) > _OTHERS_GIB:
        problems.append(f"{used:.0f} GiB of its memory is in use; end the processes that use it (nvidia-smi)")
    return problems
