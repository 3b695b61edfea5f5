"""Define what all pictures share: the colours, and a picture with its description."""

from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import escape

COLOURS = ("#0b7a75", "#b3541e", "#5b3fa6", "#8a6d00", "#3a6ea5", "#a02c5d")


class Picture(NamedTuple):
    """A picture, and the words with which a page describes it."""

    drawn: str
    description: str


def picture(description: str, width: float, height: float, style: str, shapes: Iterable[str]) -> Picture:
    """Return shapes as an SVG file, with a margin of 8 on the left and on the right."""
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {width + 16:g} {height:g}" role="img">'
        f"<title>{escape(description)}</title><style>{style}</style>"
    )
    return Picture(f"{opened}{''.join(shapes)}</svg>\n", description)
