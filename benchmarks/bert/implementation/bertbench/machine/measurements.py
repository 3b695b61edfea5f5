"""Keep measurements of this kind of machine in the user's cache, so that later runs don't have to repeat them."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertbench.common.atomic import new_file


def read_measurements(path: Path) -> dict[str, Any]:
    """Return the object in the file; an unreadable file counts as empty, so the run measures again."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def remember_measurement(path: Path, key: str, record: object) -> None:
    """Store a measurement for later runs; do nothing if the folder can't be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as unfinished:
            unfinished.write_text(json.dumps(read_measurements(path) | {key: record}, indent=2) + "\n")
