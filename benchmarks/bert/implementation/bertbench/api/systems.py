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
"""Settings by dotted name, such as {"schedule.max_steps": 100}, or texts as for --set: "schedule.max_steps=100"."""


@user_errors()
def load_system(name: str | Path, overrides: Overrides = ()) -> System:
    """Load a system: it is validated and frozen, and has every setting and the numbers that follow from them.

    `name` is a system of the project such as "cpu_demo", the path of a .json file, or the path of a run, whose settings
    are loaded. `overrides` are settings by dotted name, {"schedule.max_steps": 100}, or texts as for --set,
    ["schedule.max_steps=100"].

    Raises BertbenchError, which names every problem, its place, and the remedy.
    """
    return load(str(name), _as_text(overrides))


def _as_text(overrides: Overrides) -> list[str]:
    """Return overrides as texts for --set."""
    if isinstance(overrides, str):
        raise ConfigError(f"overrides: found the text {overrides!r}, expected a list of texts; write it in brackets")
    if not isinstance(overrides, Mapping):
        return [str(override) for override in overrides]
    texts = []
    for setting, value in overrides.items():
        try:
            content = json.dumps(str(value) if isinstance(value, Path) else value)
        except TypeError as error:
            raise ConfigError(
                f"overrides: {setting} is a {type(value).__name__}; expected a value that JSON has: a number, a text, "
                "true, null, a list or a dictionary"
            ) from error
        texts.append(f"{setting}={content}")
    return texts
