"""Curves in a terminal: dots of braille, two across and four down in a letter."""

import math
from collections.abc import Sequence

_FIRST = 0x2800  # the letter without dots
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column, as Unicode numbers them
_LABEL = 7


def plot(
    points: Sequence[tuple[float, float]], width: int, height: int, level: float | None = None, form: str = "{:.3g}"
) -> list[str]:
    """Return `height` lines of `width` letters: y's ends at the left, a curve through the points, `level` dashed.

    Points that aren't finite are left out; without points there are no lines.
    """
    known = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    across = width - _LABEL - 1
    if not known or across < 2 or height < 1:
        return []
    ys = [y for _, y in known] + ([level] if level is not None else [])
    (left, right), (low, high) = (_range([x for x, _ in known]), _range(ys))
    dots = [[0] * across for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        column = round((x - left) / (right - left) * (2 * across - 1))
        return column, round((high - y) / (high - low) * (4 * height - 1))

    def draw(column: int, row: int) -> None:
        dots[row // 4][column // 2] |= _DOTS[row % 4][column % 2]

    if level is not None:
        _, row = place(left, level)
        for column in range(0, 2 * across, 4):
            draw(column, row)
    before = place(*known[0])
    for x, y in known:
        after = place(x, y)
        for share in range(steps := max(abs(after[0] - before[0]), abs(after[1] - before[1]), 1)):
            draw(*(round(b + (a - b) * (share + 1) / steps) for b, a in zip(before, after, strict=True)))
        before = after
    draw(*place(*known[0]))
    labels = {0: form.format(high), height - 1: form.format(low)}
    return [
        f"{labels.get(number, ''):>{_LABEL}} " + "".join(chr(_FIRST + dot) for dot in line)
        for number, line in enumerate(dots)
    ]


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
