"""Read a run's files beside its log defensively: a file may be missing, cut off by a kill, or hostile."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compliance.source import CannotJudge, open_plain, read_plain

_LARGEST = 1 << 20  # bytes of a description
_LONGEST_LINE = 1 << 16  # bytes


def described(log: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of the folder beside a log; empty if there is none."""
    try:
        content = json.loads(read_plain(log.with_suffix("") / name, _LARGEST))
    except (CannotJudge, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def recorded(file: Path, largest: int, most: int, longest: int = _LONGEST_LINE) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a file's first `most` lines, one a line; none from a file above `largest` bytes.

    Skips lines without an object, such as a killed process's last, and lines above `longest` bytes.
    """
    try:
        with open_plain(file, largest) as stream:
            for _ in range(most):
                line = stream.readline(longest)
                if not line:
                    return
                try:
                    content = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(content, dict):
                    yield content
    except CannotJudge:
        return
