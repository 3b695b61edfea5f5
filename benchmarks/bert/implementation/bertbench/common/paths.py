"""Locate the project's own files, data and results.

In a checkout, all of them are in the repository. In an installation from a wheel, the files are in the package's
`share` (setup.py puts them there), and data and results are in the working directory.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
_SHARE = PACKAGE / "share"

REPOSITORY: Path | None = PACKAGE.parents[3] if PACKAGE.match("benchmarks/bert/implementation/bertbench") else None
"""The checkout, or the unpacked archive, that this code runs from; None if it is installed."""

_BENCHMARK = _SHARE if REPOSITORY is None else REPOSITORY / "benchmarks" / "bert"
SYSTEMS = _BENCHMARK / "systems"
LAUNCH = _BENCHMARK / "launch"
SCRIPTS_HOME = REPOSITORY or _SHARE
"""Folder of run_and_time.sh."""
FINETUNING_LOG = "mlperf_log.txt"
METRICS = "metrics.jsonl"


def data_path(path: str) -> Path:
    """Return the place of a dataset or of weights: in DATADIR if that is set, else in data/.

    An absolute `path` stays as it is.
    """
    return Path(os.environ.get("DATADIR") or home() / "data") / path


def cache_folder() -> Path:
    """Return the user's cache folder, which saves later runs from measuring and compiling again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertbench"


def shown_path(path: Path) -> str:
    """Return a path as a person in the working directory would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def runs_folder() -> Path:
    """Return the folder to which runs are written: LOGDIR if that is set, else runs/."""
    return Path(os.environ.get("LOGDIR") or home() / "runs")


def home() -> Path:
    """Return the folder of data/ and runs/: the repository, or the working directory if installed."""
    return REPOSITORY or Path.cwd()


def folder_of(log: Path) -> Path:
    """Return the folder of the files that belong to a run's log.

    The files of result_3.txt are in the folder result_3; a fine-tuning log is in one folder with its files.
    """
    return log.parent if log.name == FINETUNING_LOG else log.with_suffix("")
