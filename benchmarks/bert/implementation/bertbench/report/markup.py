"""Text of others in HTML: what a log or a file's name says is shown, and neither runs nor hides anything."""

from html import escape as as_html

from compliance.record import printable


def escape(text: str) -> str:
    """Return text for HTML; control characters, halves of surrogate pairs and marks of direction as their escapes."""
    return as_html("\n".join(map(printable, text.split("\n"))))
