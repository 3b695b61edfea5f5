"""metrics.jsonl, which runs of bertbench leave beside their logs, as curves short enough to draw."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

_MOST_POINTS = 200


def curves(log: Path, fields: tuple[str, ...]) -> dict[str, list[tuple[float, float]]]:
    """For each field its (step, mean over as many steps as one point stands for); empty where nothing was written."""
    found: dict[str, list[tuple[float, float]]] = {field: [] for field in fields}
    for row in _rows(log.with_suffix("") / "metrics.jsonl"):
        for field, points in found.items():
            if field in row and "step" in row:
                points.append((row["step"], row[field]))
    return {field: _thinned(points) for field, points in found.items()}


def _rows(path: Path) -> Iterator[dict[str, float]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                content = json.loads(line)
                row = {name: float(value) for name, value in content.items() if isinstance(value, int | float)}
            except (ValueError, AttributeError, OverflowError, RecursionError):
                continue  # such as the last line of a run that was killed
            yield row


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    stride = -(-len(points) // _MOST_POINTS) or 1
    groups = (points[start : start + stride] for start in range(0, len(points), stride))
    return [(group[-1][0], mean(value for _, value in group)) for group in groups]
