"""Read the JSON files next to a run's log. A file may be missing, truncated because the run was killed, or malicious.

`folder_of` (common/paths.py) says which folder belongs to a log.
"""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any

from bertbench.common.paths import METRICS, folder_of
from compliance.read.source import CannotJudge, read_plain

_LARGEST_OBJECT = 1 << 20  # bytes of a file with one object
_LARGEST_RECORD = 256 << 20  # bytes of a file with an object in each line
_MOST_POINTS = 200
Row = dict[str, Any]
"""A line of metrics.jsonl."""
Points = list[tuple[float, float]]


def read_json(log: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file in a log's folder; an empty one if there is none."""
    try:
        return _json_object(read_plain(folder_of(log) / name, _LARGEST_OBJECT))
    except CannotJudge:
        return {}


def read_flattened(log: Path, name: str) -> dict[str, Any]:
    """Return the values in a JSON file of a log's folder by dotted names, as `flattened` does."""
    return flattened(read_json(log, name))


def flattened(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values under the names that --set uses. Nulls are left out: older commits lack newer settings."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = comparable(value)
    return flat


def comparable(value: Any) -> Any:
    """Return a value that equals itself and can be printed: NaN and lists become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    return value if isinstance(value, str | int) else json.dumps(value)


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line in a file of at most 256 MiB; skip truncated lines.

    Lines may end with a comma, as those of an array do.
    """
    with suppress(CannotJudge):
        for line in read_plain(file, _LARGEST_RECORD).splitlines():
            if content := _json_object(line.rstrip(b",")):
                yield content


def _json_object(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a text; an empty one if there is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def metric_rows(log: Path) -> Iterator[Row]:
    """Yield the steps in a log's metrics.jsonl."""
    return json_lines(folder_of(log) / METRICS)


def thinned(points: Points) -> Points:
    """Return means over neighbouring points, few enough to draw; each is at the step of its last point."""
    stride = max(1, math.ceil(len(points) / _MOST_POINTS))
    means = []
    for start in range(0, len(points), stride):
        neighbours = points[start : start + stride]
        last_step, _ = neighbours[-1]
        means.append((last_step, mean(value for _, value in neighbours)))
    return means
