"""What a run leaves beside its log, read with care: a file may be missing, cut off by a kill, or anybody's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compliance.source import CannotJudge, open_plain, read_plain

_LARGEST = 1 << 20  # bytes of a description
_LONGEST_LINE = 1 << 16  # bytes


def described(log: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of the folder beside a log; empty where there is none."""
    try:
        content = json.loads(read_plain(log.with_suffix("") / name, _LARGEST))
    except (CannotJudge, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def recorded(file: Path, largest: int, most: int, longest: int = _LONGEST_LINE) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file's first `most` lines, each on its own; nothing of a file above `largest` bytes.

    Lines without one, such as the last of a process that was killed, and those above `longest` bytes are passed over.
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
