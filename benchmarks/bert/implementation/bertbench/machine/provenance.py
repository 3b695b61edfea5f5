"""Which code runs on which machine: what every result says of its origin."""

import os
import platform
import subprocess
from importlib.metadata import version

import torch

from bertbench.common.paths import REPOSITORY
from bertbench.distributed.affinity import available_cores
from bertbench.machine.processor import processor


def provenance() -> dict[str, object]:
    """The commit, whether the tree had changes, and the machine: what a result must say of itself."""
    return {
        **_commit(),
        "processor": processor(),
        "cores": available_cores(),
        "operating_system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mlperf_logging": version("mlperf-logging"),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
    }


def _commit() -> dict[str, object]:
    """Return the checkout's commit and whether files differ from it; None for both where the code is no checkout.

    A package or an unpacked archive may lie inside somebody else's repository: its commit says nothing of this code.
    """
    root = _git("rev-parse", "--show-toplevel")
    if REPOSITORY is None or root is None or not REPOSITORY.samefile(root):
        return {"commit": None, "tree_dirty": None}
    return {"commit": _git("rev-parse", "HEAD"), "tree_dirty": bool(_git("status", "--porcelain"))}


def _git(*arguments: str) -> str | None:
    if REPOSITORY is None:
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", REPOSITORY, *arguments], capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):  # no git, or no repository: an unpacked archive
        return None
    return answer.stdout.strip()
