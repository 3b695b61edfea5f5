"""Make text from logs and file names harmless: it can't run code or hide anything, and fits into a table."""

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
