"""Read a run's files beside its log defensively: a file may be missing, cut off by a kill, or hostile."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compliance.source import CannotJudge, open_plain, read_plain

_LARGEST = 1 << 20  # bytes of a description
_LONGEST_LINE = 1 << 16  # bytes
_LONGEST_SHOWN = 1 << 12  # bytes of one line
_BLOCK = 1 << 20


def described(log: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of the folder beside a log; empty if there is none."""
    try:
        content = json.loads(read_plain(log.with_suffix("") / name, _LARGEST))
    except (CannotJudge, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def line_of(path: Path, number: int) -> str:
    r"""Return the beginning of a line; lines are counted from 1 by \n, as in editors. Raises CannotJudge."""
    with open_plain(path) as stream:
        before = number - 1
        while block := stream.read(_BLOCK):
            here = block.count(b"\n")
            if here < before:
                before -= here
                continue
            at = 0
            for _ in range(before):
                at = block.index(b"\n", at) + 1
            line, *_ = (block[at:] + stream.read(_LONGEST_SHOWN)).split(b"\n", 1)
            more = " ..." if len(line) > _LONGEST_SHOWN else ""
            return line[:_LONGEST_SHOWN].decode(errors="replace").strip() + more
    return ""


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
