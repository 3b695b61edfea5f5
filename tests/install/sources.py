"""The sources of a wheel or a source distribution, and how pip builds it without a network."""

import shutil
import sys
from pathlib import Path

from bertbench.common.paths import REPOSITORY

_BUILT_FROM = (
    "LICENSE", "README.md", "benchmarks", "compliance", "lab", "pyproject.toml", "run_and_time.sh", "setup.py",
)  # fmt: skip
WITHOUT_NETWORK = (
    sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
)  # fmt: skip
"""The words before `--wheel-dir FOLDER SOURCES`."""


def copied_sources(folder: Path) -> Path:
    """A new folder with only the sources, because setuptools builds in place, where there may be an older build."""
    assert REPOSITORY is not None
    folder.mkdir()
    for name in _BUILT_FROM:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy2
        copy(REPOSITORY / name, folder / name)
    return folder
