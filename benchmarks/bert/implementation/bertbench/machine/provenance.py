"""Record the origin of a result: commit, machine, and software with versions."""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import distributions, version
from pathlib import Path

import pynvml
import torch

from bertbench.common.children import dying_with_us
from bertbench.common.paths import REPOSITORY
from bertbench.distributed.cores import available_cores
from bertbench.machine.gpus import ask_driver, nvidia_gpus
from bertbench.machine.processor import instructions, processor

_IMAGE, _DIRTY = "BERTBENCH_COMMIT", "-dirty"
"""In an image, holds the commit that the image was built from, with a suffix if the tree had changes (Dockerfile)."""
_NEW = "?? "  # how git marks a file that it doesn't track
_SOURCES = ("benchmarks/bert/implementation/", "compliance/", "lab/")
_LIBRARIES = ("numpy", "mlperf-logging", "apex", "transformer-engine")


def provenance() -> dict[str, object]:
    """Return the commit, whether the tree had changes, and the machine, for a result's record."""
    return {
        "commit": commit(),
        "tree_dirty": _has_changes(),
        "processor": processor(),
        "instructions": instructions(),
        "cores": available_cores(),
        "operating_system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mlperf_logging": version("mlperf-logging"),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
    }


def commit() -> str | None:
    """Return the repository's commit, or in an image the commit that it was built from; None if neither is known."""
    return _git("rev-parse", "HEAD") or os.environ.get(_IMAGE, "").removesuffix(_DIRTY) or None


def unchanged_commit() -> str | None:
    """Return the commit whose code this is; None if the code has changes, or if that is unknown."""
    return commit() if _has_changes() is False else None


def _has_changes() -> bool | None:
    """Return whether the code differs from `commit()`; None if unknown."""
    if (changes := _git("status", "--porcelain")) is not None:
        return any(_is_of_the_code(line) for line in changes.splitlines())
    return os.environ[_IMAGE].endswith(_DIRTY) if os.environ.get(_IMAGE) else None


def _is_of_the_code(change: str) -> bool:
    """Return whether a line of `git status --porcelain` is of a tracked file, or of a new one among the sources.

    Other new files are a user's: a report, a system file, a job's output.
    """
    return not change.startswith(_NEW) or change.removeprefix(_NEW).startswith(_SOURCES)


def uncommitted(paths: Sequence[str]) -> list[str]:
    """Return the files under these paths of the repository that differ from its commit; none if git is missing."""
    lines = (_git("status", "--porcelain", "--", *paths) or "").splitlines()
    return [line.split(maxsplit=1)[-1] for line in lines]


def _git(*arguments: str) -> str | None:
    """Return git's answer about the checkout; None if the code isn't in a git checkout."""
    if REPOSITORY is None:
        return None
    # an unpacked archive may be inside another project's repository, whose commit doesn't describe our code
    here_only = os.environ | {"GIT_CEILING_DIRECTORIES": str(REPOSITORY.parent)}
    try:
        answer = subprocess.run(
            ["git", "-C", REPOSITORY, *arguments],
            capture_output=True, text=True, check=True, timeout=20, env=here_only,
            preexec_fn=dying_with_us(),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):  # no git, or no repository: an unpacked archive
        return None
    return answer.stdout.strip()


def software() -> dict[str, str]:
    """Return framework, other_software_stack and operating_system of this machine, with versions."""
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    stack = [f"Python {platform.python_version()}", f"Linux {platform.release()}"]
    if nvidia_gpus() and (driver := ask_driver(pynvml.nvmlSystemGetDriverVersion)):
        stack.append(f"NVIDIA driver {driver}")
    if torch.version.cuda:
        stack += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    if torch.cuda.is_available():
        stack.append("NCCL " + ".".join(map(str, torch.cuda.nccl.version())))
    libraries = (f"{name} {package.version}" for name in _LIBRARIES for package in list(distributions(name=name))[:1])
    container = os.environ.get("NVIDIA_PYTORCH_VERSION")  # set in NVIDIA's containers, for example 22.09
    return {
        "framework": f"PyTorch {torch.__version__}{f', NVIDIA Release {container}' if container else ''}",
        "other_software_stack": ", ".join([*stack, *libraries]),
        "operating_system": release.get("PRETTY_NAME", platform.system()),
    }


def with_software(description: dict[str, str]) -> dict[str, str]:
    """Return a system description in which this machine's versions replace entries that are missing or shorter."""
    installed = {name: value for name, value in software().items() if value.startswith(description[name])}
    return description | installed
