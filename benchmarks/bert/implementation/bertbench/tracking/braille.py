"""Draw curves in a terminal: dots of braille, two across and four down in a letter."""

import math
from collections.abc import Sequence
from itertools import pairwise

_FIRST = 0x2800  # the letter without dots
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column, as Unicode numbers them
_LABEL = 7


def plot(points: Sequence[tuple[float, float]], width: int, height: int, level: float | None = None) -> list[str]:
    """Return `height` lines of `width` letters: y's ends at the left, a curve through the points, `level` dashed.

    Points that aren't finite are left out; without points there are no lines.
    """
    known = [point for point in points if all(map(math.isfinite, point))]
    across = width - _LABEL - 1
    if not known or across < 2:
        return []
    left, right = _range([x for x, _ in known])
    low, high = _range([*(y for _, y in known), *([] if level is None else [level])])
    columns, rows = 2 * across - 1, 4 * height - 1
    places = [(round((x - left) / (right - left) * columns), round((high - y) / (high - low) * rows)) for x, y in known]
    dots = {*places}
    for (column, row), (to_column, to_row) in pairwise(places):
        steps = max(abs(to_column - column), abs(to_row - row), 1)
        dots |= {
            (round(column + (to_column - column) * step / steps), round(row + (to_row - row) * step / steps))
            for step in range(steps)
        }
    if level is not None:
        dots |= {(column, round((high - level) / (high - low) * rows)) for column in range(0, columns, 4)}
    labels = {0: f"{high:.3g}", height - 1: f"{low:.3g}"}
    return [
        f"{labels.get(line, ''):>{_LABEL}} " + "".join(_letter(dots, 2 * place, 4 * line) for place in range(across))
        for line in range(height)
    ]


def _letter(dots: set[tuple[int, int]], column: int, row: int) -> str:
    """Return the letter whose first dot is there."""
    bits = (
        bit for down, pair in enumerate(_DOTS) for right, bit in enumerate(pair) if (column + right, row + down) in dots
    )
    return chr(_FIRST + sum(bits))


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
