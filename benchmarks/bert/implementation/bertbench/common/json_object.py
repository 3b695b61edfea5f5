"""Read a file that must hold one JSON object."""

import json
from pathlib import Path
from typing import Any

from bertbench.common.errors import BertbenchError, system_reason


def read_object(path: Path, error: type[BertbenchError], remedy: str) -> dict[str, Any]:
    """Return the object in `path`; raise `error`, whose message ends with `remedy`, if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"{path}: cannot be read ({system_reason(problem)}); {remedy}") from problem
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: is not valid JSON ({problem}); {remedy}") from problem
    if not isinstance(content, dict):
        raise error(f"{path}: found {type(content).__name__}, expected one JSON object; {remedy}")
    return content
