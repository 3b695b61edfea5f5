"""Make text from logs and file names harmless: it can't run code or hide anything, and fits into a table."""

from collections.abc import Sequence
from html import escape as as_html

from compliance.read.record import printable

_WIDEST_CELL = 40


def escape(text: str) -> str:
    """Return text for HTML, with control characters, half surrogate pairs and direction marks as escapes."""
    lines = [printable(line) for line in text.split("\n")]
    return as_html("\n".join(lines))


def cell(text: str) -> str:
    """Return text for a table, with terminal control characters escaped, cut to fit."""
    shown = printable(text)
    return shown if len(shown) <= _WIDEST_CELL else f"{shown[: _WIDEST_CELL - 3]}..."


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Return the lines of a table for a terminal, with the first `left` columns left-aligned, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = []
        for column, (text, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(text.ljust(width) if column < left else text.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return lines
