"""Escape foreign text for HTML, so that text from a log or a file's name neither runs nor hides anything."""

from html import escape as as_html

from compliance.record import printable


def escape(text: str) -> str:
    """Return text for HTML, with control characters, half surrogate pairs and direction marks as escapes."""
    return as_html("\n".join(map(printable, text.split("\n"))))
