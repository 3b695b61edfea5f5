"""Record the origin of a result: code and machine."""

import os
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version

import torch

from bertbench.common.paths import REPOSITORY
from bertbench.distributed.affinity import available_cores
from bertbench.machine.processor import processor


def provenance() -> dict[str, object]:
    """Return the commit, whether the tree had changes, and the machine, for a result's record."""
    return {
        "commit": commit(),
        "tree_dirty": None if (changes := _git("status", "--porcelain")) is None else bool(changes),
        "processor": processor(),
        "cores": available_cores(),
        "operating_system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mlperf_logging": version("mlperf-logging"),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
    }


def commit() -> str | None:
    """Return the repository's commit; None without git."""
    return _git("rev-parse", "HEAD")


def uncommitted(paths: Sequence[str]) -> list[str]:
    """Return the files below these paths of the repository that differ from its commit; none without git."""
    lines = (_git("status", "--porcelain", "--", *paths) or "").splitlines()
    return [line.split(maxsplit=1)[-1] for line in lines]


def _git(*arguments: str) -> str | None:
    """Return git's answer about the checkout; None if the code isn't in one."""
    return _answer(*arguments) if _is_checkout() else None


@cache
def _is_checkout() -> bool:
    """Return whether the code belongs to a checkout.

    A package or an unpacked archive may lie inside another project's repository, whose commit doesn't describe it.
    """
    root = _answer("rev-parse", "--show-toplevel")
    return REPOSITORY is not None and root is not None and REPOSITORY.samefile(root)


def _answer(*arguments: str) -> str | None:
    if REPOSITORY is None:
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", REPOSITORY, *arguments], capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):  # no git, or no repository: an unpacked archive
        return None
    return answer.stdout.strip()
