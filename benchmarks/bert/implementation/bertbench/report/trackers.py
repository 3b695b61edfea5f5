"""Open trackers by name: to_<word>.py records runs in a folder <word>, and needs bertbench's extra <word>."""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from bertbench.common.errors import ConfigError
from bertbench.report.feed import Tracker
from bertbench.report.run_reading import FollowedRun
from bertbench.report.tracker_options import PACKAGES


def check_installed(names: Sequence[str]) -> None:
    """Raise ConfigError if packages that one of `PACKAGES` needs are not installed."""
    for name in names:
        missing = [package for package in PACKAGES[name] if importlib.util.find_spec(package) is None]
        if missing:
            raise ConfigError(
                f"{name} needs {' and '.join(missing)}, which this Python doesn't have; install bertbench's extra "
                f"`{_word(name)}`: pip install -e '.[{_word(name)}]'"
            )


def folder_of(name: str, out: Path) -> Path:
    """Return the folder that a tracker writes to by default, in the folder of runs."""
    return out / _word(name)


def open_tracker(name: str, run: FollowedRun, folder: Path) -> Tracker:
    """Begin the record of a run by an installed tracker. Raises errors of the tracker's own kind."""
    tracker: Tracker = importlib.import_module(f"bertbench.tracking.to_{_word(name)}").Recorder(run, folder)
    return tracker


def _word(name: str) -> str:
    return name.removesuffix("-offline")
