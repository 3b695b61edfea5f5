"""Draw curves in a terminal: a `*` a point."""

from collections.abc import Sequence

_LABEL = 7


def plot(points: Sequence[tuple[float, float]], width: int, height: int, level: float | None = None) -> list[str]:
    """Return `height` lines of `width` letters: y's ends at the left, then the points, with a line at `level`."""
    if not points:
        return []
    left, right = _range([x for x, _ in points])
    low, high = _range([*(y for _, y in points), *([] if level is None else [level])])
    across = max(1, width - _LABEL - 1)
    rows = [[" "] * across for _ in range(height)]

    def row(y: float) -> list[str]:
        return rows[round((high - y) / (high - low) * (height - 1))]

    if level is not None:
        row(level)[:] = "-" * across
    for x, y in points:
        row(y)[round((x - left) / (right - left) * (across - 1))] = "*"
    labels = {0: f"{high:.3g}", height - 1: f"{low:.3g}"}
    return [f"{labels.get(line, ''):>{_LABEL}} {''.join(letters)}" for line, letters in enumerate(rows)]


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
