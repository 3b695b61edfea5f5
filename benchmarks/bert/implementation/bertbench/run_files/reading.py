"""Read a run's files beside its log defensively: a file may be missing, cut off by a kill, or hostile."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.run_files.samples import sample_counts
from compliance.read.run import RunFacts, number
from compliance.read.source import LARGEST_LOG, CannotJudge, read_plain

_LARGEST = 1 << 20  # bytes of a description
_LARGEST_RECORD = 256 << 20  # bytes of a file of lines
_LONGEST_SHOWN = 1 << 12  # bytes of one line
_MOST_POINTS = 200
Points = list[tuple[float, float]]


def described(log: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of the folder beside a log; empty if there is none."""
    try:
        return json_object(read_plain(log.with_suffix("") / name, _LARGEST))
    except CannotJudge:
        return {}


def line_of(path: Path, number: int) -> str:
    r"""Return the beginning of a line; lines are counted from 1 by \n, as in editors. Raises CannotJudge."""
    line = read_plain(path, LARGEST_LOG).split(b"\n")[number - 1]
    return line[:_LONGEST_SHOWN].decode(errors="replace").strip()


def recorded(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a file of at most 256 MiB, one a line; lines cut off by a kill are skipped."""
    with suppress(CannotJudge):
        yield from filter(None, map(json_object, read_plain(file, _LARGEST_RECORD).splitlines()))


def json_object(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a text; empty without one."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def metrics(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the steps in metrics.jsonl beside a log."""
    return recorded(log.with_suffix("") / "metrics.jsonl")


def curve(log: Path, field: str) -> Points:
    """Return (step, value) of each step in metrics.jsonl that has the field."""
    found = ((number(row.get("step")), number(row.get(field))) for row in metrics(log))
    return [(step, value) for step, value in found if step is not None and value is not None]


def accuracies(facts: RunFacts) -> Points:
    """Return (training samples, accuracy) of each evaluation whose samples are known."""
    return [(one.samples, one.accuracy) for one in sample_counts(facts).evaluations if one.samples is not None]


def thinned(points: Points) -> Points:
    """Return means over neighbouring points, few enough to draw, each at its last point's step."""
    stride = -(-len(points) // _MOST_POINTS) or 1
    groups = (points[start : start + stride] for start in range(0, len(points), stride))
    return [(group[-1][0], mean(value for _, value in group)) for group in groups]
