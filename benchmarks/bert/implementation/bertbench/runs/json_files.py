"""Read the JSON files next to a run's log. A file may be missing, truncated because the run was killed, or malicious.

The files of `result_3.txt` are in the folder `result_3`.
"""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any

from compliance.read.run import number
from compliance.read.source import CannotJudge, read_plain

_LARGEST_OBJECT = 1 << 20  # bytes of a file with one object
_LARGEST_RECORD = 256 << 20  # bytes of a file with an object in each line
_MOST_POINTS = 200
Points = list[tuple[float, float]]


def read_json(log: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file in a log's folder; an empty one if there is none."""
    try:
        return _json_object(read_plain(log.with_suffix("") / name, _LARGEST_OBJECT))
    except CannotJudge:
        return {}


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line in a file of at most 256 MiB; skip truncated lines."""
    with suppress(CannotJudge):
        for line in read_plain(file, _LARGEST_RECORD).splitlines():
            if content := _json_object(line):
                yield content


def _json_object(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a text; an empty one if there is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def metric_rows(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the steps in a log's metrics.jsonl."""
    return json_lines(log.with_suffix("") / "metrics.jsonl")


def metric_curve(log: Path, field: str) -> Points:
    """Return (step, value) for each step in a log's metrics.jsonl that has the field."""
    points = []
    for row in metric_rows(log):
        step = number(row.get("step"))
        value = number(row.get(field))
        if step is not None and value is not None:
            points.append((step, value))
    return points


def thinned(points: Points) -> Points:
    """Return means over neighbouring points, few enough to draw; each is at the step of its last point."""
    stride = max(1, math.ceil(len(points) / _MOST_POINTS))
    means = []
    for start in range(0, len(points), stride):
        neighbours = points[start : start + stride]
        last_step, _ = neighbours[-1]
        means.append((last_step, mean(value for _, value in neighbours)))
    return means
