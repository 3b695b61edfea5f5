"""List the trackers by name; each needs an optional package, loaded only on request."""

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from bertbench.common.errors import ConfigError
from bertbench.tracking.feed import Tracker
from bertbench.tracking.options import TRACKERS
from bertbench.tracking.reading import FollowedRun


class _Kind(NamedTuple):
    """Where a tracker's code is, what it needs, and the folder in LOGDIR that it writes to."""

    module: str
    name: str
    packages: tuple[str, ...]
    folder: str


_KINDS = {
    "tensorboard": _Kind("to_tensorboard", "TensorBoard", ("tensorboard",), "tensorboard"),
    "mlflow": _Kind("to_mlflow", "Mlflow", ("mlflow", "sqlalchemy", "alembic"), "mlflow"),
    "wandb-offline": _Kind("to_wandb", "WandbOffline", ("wandb",), "wandb"),
}
assert tuple(_KINDS) == TRACKERS, "every tracker that can be asked for is known here"


def check_installed(names: Sequence[str]) -> None:
    """Raise ConfigError if a tracker's packages are not installed."""
    for name in names:
        missing = [package for package in _KINDS[name].packages if importlib.util.find_spec(package) is None]
        if missing:
            raise ConfigError(
                f"{name} needs {' and '.join(missing)}, which this Python doesn't have; install bertbench's extra "
                f"`{name.removesuffix('-offline')}`: pip install -e '.[{name.removesuffix('-offline')}]'"
            )


def folder_of(name: str, out: Path) -> Path:
    """Return the folder that a tracker writes to by default, in the folder of runs."""
    return out / _KINDS[name].folder


def open_tracker(name: str, run: FollowedRun, folder: Path) -> Tracker:
    """Begin the record of a run. Raises ConfigError where its package is missing, and what `refusals` returns."""
    check_installed([name])
    tracker: Tracker = getattr(_module(name), _KINDS[name].name)(run, folder)
    return tracker


def refusals(name: str) -> tuple[type[Exception], ...]:
    """Return what a tracker raises where it can't write."""
    found: tuple[type[Exception], ...] = _module(name).REFUSALS
    return found


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"bertbench.tracking.{_KINDS[name].module}")
