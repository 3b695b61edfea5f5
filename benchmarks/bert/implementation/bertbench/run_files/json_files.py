"""Read the JSON files that stand next to a run's log: a file may be missing, cut off by a kill, or hostile.

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

_LARGEST_OBJECT = 1 << 20  # bytes of a file that holds one object
_LARGEST_RECORD = 256 << 20  # bytes of a file of lines
_MOST_POINTS = 200
Points = list[tuple[float, float]]


def read_json(log: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of a log's folder; empty if there is none."""
    try:
        return json_object(read_plain(log.with_suffix("") / name, _LARGEST_OBJECT))
    except CannotJudge:
        return {}


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a file of at most 256 MiB, one a line; lines cut off by a kill are skipped."""
    with suppress(CannotJudge):
        for line in read_plain(file, _LARGEST_RECORD).splitlines():
            if content := json_object(line):
                yield content


def json_object(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a text; empty without one."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def metric_rows(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the steps in a log's metrics.jsonl."""
    return json_lines(log.with_suffix("") / "metrics.jsonl")


def metric_curve(log: Path, field: str) -> Points:
    """Return (step, value) of each step in a log's metrics.jsonl that has the field."""
    points = []
    for row in metric_rows(log):
        step = number(row.get("step"))
        value = number(row.get(field))
        if step is not None and value is not None:
            points.append((step, value))
    return points


def thinned(points: Points) -> Points:
    """Return means over neighbouring points, few enough to draw, each at its last point's step."""
    stride = max(1, math.ceil(len(points) / _MOST_POINTS))
    means = []
    for start in range(0, len(points), stride):
        neighbours = points[start : start + stride]
        last_step, _ = neighbours[-1]
        means.append((last_step, mean(value for _, value in neighbours)))
    return means
