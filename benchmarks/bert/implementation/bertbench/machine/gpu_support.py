"""Check that a machine's GPUs can run the installed torch and a system's number format.

A build of torch has kernels for certain compute capabilities only. A GPU below all of them can't run a single step. A
GPU older than the A100 has no bf16.
"""

import re
from collections.abc import Sequence

import torch

from bertbench.common.errors import RunError
from bertbench.config import System
from bertbench.machine.gpus import PresentGpu, present_gpus
from bertbench.model.format_needs import format_problem

# The architectures that torch 2.11 to 2.14 for CUDA 12.8 to 13.2 are built for, according to torch/cuda/__init__.py
# (PYTORCH_RELEASES_CODE_CC). Builds for CUDA 12.6 start at 5.0. This list is used if the installed torch is a build for
# CPUs, which has no list of its own.
_PUBLISHED = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


def torch_architectures() -> list[str]:
    """Return the GPU architectures, such as sm_80, that the installed torch has kernels for.

    If torch is a build for CPUs, return those of the published CUDA builds.
    """
    return torch.cuda.get_arch_list() or list(_PUBLISHED)


def unsupported(gpus: Sequence[PresentGpu], architectures: Sequence[str]) -> str | None:
    """Return a message about the first GPU that torch has no kernels for, with the remedy; None if there is none."""
    for number, gpu in enumerate(gpus):
        if not any(_runs_on(gpu.capability, architecture) for architecture in architectures):
            return (
                f"GPU {number}, {gpu.model}: it has compute capability {gpu.version}, and torch {torch.__version__} "
                f"has kernels for {', '.join(architectures)} only; use a torch that is built for it "
                "(docs/install.md), or a CPU system such as cpu_demo"
            )
    return None


def _runs_on(capability: tuple[int, int], architecture: str) -> bool:
    """Return whether a GPU runs kernels of an architecture (CUDA C++ Programming Guide, compatibility).

    Machine code (sm_XY) runs on GPUs with the same major number and the same or a higher minor number. The driver
    compiles PTX (compute_XY) for all later GPUs. A letter after the number means that the code runs on that GPU alone.
    """
    kind, _, number = architecture.partition("_")
    major, minor = divmod(int(re.sub(r"\D", "", number)), 10)
    if kind == "compute":
        return capability >= (major, minor)
    if not number.isdecimal():
        return capability == (major, minor)
    return capability[0] == major and capability[1] >= minor


def check_gpus(system: System) -> None:
    """Raise RunError if this machine's GPUs can't compute what a CUDA system asks for, by torch or by number format."""
    if system.launch.device != "cuda":
        return
    gpus = present_gpus()
    if gpus and torch.version.cuda is None:
        raise RunError(
            f"torch {torch.__version__} is built without CUDA and can't use {gpus[0].model}; install a build for CUDA "
            "(docs/install.md), or use a CPU system such as cpu_demo"
        )
    if problem := unsupported(gpus, torch_architectures()):
        raise RunError(problem)
    for gpu in gpus:
        if problem := format_problem(system.precision.compute, gpu.model, gpu.capability):
            raise RunError(f"{system.name}: {problem}")
