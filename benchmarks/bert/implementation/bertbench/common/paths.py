"""Where things are: the repository, the systems that come with it, data and results."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[5]
SYSTEMS = REPOSITORY / "benchmarks" / "bert" / "systems"
STUDIES = REPOSITORY / "benchmarks" / "bert" / "studies"


def data_folder(path: str) -> Path:
    """A dataset's folder: `path` relative to DATADIR if that is set, else to the repository."""
    return Path(os.environ.get("DATADIR", REPOSITORY)) / path


def weights_file(path: str) -> Path:
    """A file of weights that a system names: found as `data_folder` finds a dataset."""
    return data_folder(path)


def shown_path(path: Path) -> str:
    """Return a path as a person in the working directory would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def runs_folder() -> Path:
    """Where runs are written: LOGDIR if that is set, else runs/ in the repository."""
    return Path(os.environ.get("LOGDIR", REPOSITORY / "runs"))
