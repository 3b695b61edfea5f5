"""Read curves short enough to draw from metrics.jsonl, which runs write beside their logs."""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from bertbench.report.beside import recorded
from compliance.run import number

_MOST_POINTS = 200
_LARGEST = 256 << 20  # bytes
_MOST_ROWS = 100_000  # steps; published runs take 20,000 at most


def curves(log: Path, fields: tuple[str, ...]) -> dict[str, list[tuple[float, float]]]:
    """Return for each field its points (step, mean over the point's steps); empty if nothing was written."""
    return {field: thinned(points) for field, points in every_step(log, fields).items()}


def every_step(log: Path, fields: tuple[str, ...]) -> dict[str, list[tuple[float, float]]]:
    """Return for each field (step, value) of each step that has it."""
    found: dict[str, list[tuple[float, float]]] = {field: [] for field in fields}
    for row in _rows(log.with_suffix("") / "metrics.jsonl"):
        for field, points in found.items():
            if field in row and "step" in row:
                points.append((row["step"], row[field]))
    return found


def thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return means over neighbouring points, few enough to draw, each at its last point's step."""
    stride = -(-len(points) // _MOST_POINTS) or 1
    groups = (points[start : start + stride] for start in range(0, len(points), stride))
    return [(group[-1][0], mean(value for _, value in group)) for group in groups]


def _rows(path: Path) -> Iterator[dict[str, float]]:
    for content in recorded(path, _LARGEST, _MOST_ROWS):
        yield {name: value for name, one in content.items() if (value := number(one)) is not None}
