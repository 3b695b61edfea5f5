"""Describe the software of this machine, in those fields of a system description that name versions."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pynvml
import torch

_LIBRARIES = ("numpy", "mlperf-logging", "apex", "transformer-engine")


def software() -> dict[str, str]:
    """Return framework, other_software_stack and operating_system with their versions, as found here."""
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    stack = [f"Python {platform.python_version()}", f"Linux {platform.release()}"]
    if driver := _driver():
        stack.append(f"NVIDIA driver {driver}")
    if torch.version.cuda:
        stack += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    if torch.cuda.is_available():
        stack.append("NCCL " + ".".join(map(str, torch.cuda.nccl.version())))
    container = os.environ.get("NVIDIA_PYTORCH_VERSION")  # set in NVIDIA's containers, for example 22.09
    return {
        "framework": f"PyTorch {torch.__version__}{f', NVIDIA Release {container}' if container else ''}",
        "other_software_stack": ", ".join([*stack, *_libraries()]),
        "operating_system": release.get("PRETTY_NAME", platform.system()),
    }


def with_software(description: dict[str, str]) -> dict[str, str]:
    """Return a system description with this machine's versions, where its own are missing or shorter."""
    found = {name: value for name, value in software().items() if value.startswith(description[name])}
    return description | found


def _driver() -> str:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or no GPU
        return ""
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def _libraries() -> list[str]:
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # an optional one
            continue
    return found
