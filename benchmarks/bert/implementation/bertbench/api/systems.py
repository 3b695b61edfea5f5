"""Load a system for a notebook or another program."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bertbench.common.errors import ConfigError
from bertbench.common.user_errors import user_errors
from bertbench.config import System
from bertbench.config import load_system as load

Overrides = Mapping[str, Any] | Iterable[str]
"""Settings by dotted name, as in {"schedule.max_steps": 100}, or texts as after --set: "schedule.max_steps=100"."""


@user_errors()
def load_system(name: str | Path, overrides: Overrides = ()) -> System:
    """Load a system: validated, frozen, with every setting and the numbers that follow from them.

    `name` is a system of the project, such as "cpu_demo", the path of a .json file, or a run: its settings. `overrides`
    are settings by dotted name, {"schedule.max_steps": 100}, or texts as after --set, ["schedule.max_steps=100"].

    Raises BertbenchError, which names every problem, where it is, and what to do.
    """
    return load(str(name), _as_text(overrides))


def _as_text(overrides: Overrides) -> list[str]:
    """Return overrides as after --set."""
    if isinstance(overrides, str):
        raise ConfigError(
            f"overrides: found the text {overrides!r}, expected a list of such texts; write it in brackets"
        )
    if not isinstance(overrides, Mapping):
        return [str(override) for override in overrides]
    texts = []
    for setting, value in overrides.items():
        try:
            content = json.dumps(str(value) if isinstance(value, Path) else value)
        except TypeError as error:
            raise ConfigError(
                f"overrides: {setting} is a {type(value).__name__}; expected what JSON has: a number, a text, true, "
                "null, a list or a dictionary"
            ) from error
        texts.append(f"{setting}={content}")
    return texts
