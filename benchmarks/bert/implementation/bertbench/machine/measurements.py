"""Keep what was measured on this kind of machine in the user's cache, so that later runs needn't measure it again."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertbench.common.atomic import new_file


def read_measurements(path: Path) -> dict[str, Any]:
    """Return the file's object; an unreadable file counts as empty, so a run measures again."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def remember_measurement(path: Path, key: str, record: object) -> None:
    """Store a measurement for later runs; silently skip an unwritable folder."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as unfinished:
            unfinished.write_text(json.dumps(read_measurements(path) | {key: record}, indent=2) + "\n")
