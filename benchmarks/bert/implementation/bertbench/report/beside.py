"""Read a run's files beside its log defensively: a file may be missing, cut off by a kill, or hostile."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from compliance.run import number
from compliance.source import CannotJudge, open_plain, read_plain

_LARGEST = 1 << 20  # bytes of a description
_LARGEST_METRICS, _MOST_STEPS = 256 << 20, 100_000  # bytes, steps; published runs take 20,000 at most
_LONGEST_LINE = 1 << 16  # bytes
_LONGEST_SHOWN = 1 << 12  # bytes of one line
_BLOCK = 1 << 20
_MOST_POINTS = 200
Points = list[tuple[float, float]]


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
            line, *_ = (block + stream.read(_LONGEST_SHOWN)).split(b"\n", before + 1)[before:]
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
                if content := json_object(line):
                    yield content
    except CannotJudge:
        return


def json_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line; empty without one."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def metrics(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the steps in metrics.jsonl beside a log."""
    return recorded(log.with_suffix("") / "metrics.jsonl", _LARGEST_METRICS, _MOST_STEPS)


def curve(log: Path, field: str) -> Points:
    """Return (step, value) of each step in metrics.jsonl that has the field."""
    found = ((number(row.get("step")), number(row.get(field))) for row in metrics(log))
    return [(step, value) for step, value in found if step is not None and value is not None]


def thinned(points: Points, most: int = _MOST_POINTS) -> Points:
    """Return means over neighbouring points, few enough to draw, each at its last point's step."""
    stride = -(-len(points) // most) or 1
    groups = (points[start : start + stride] for start in range(0, len(points), stride))
    return [(group[-1][0], mean(value for _, value in group)) for group in groups]
