"""Print on terminals that know fewer letters than Unicode, such as ASCII's, with the closest signs that they have."""

import codecs
import io
from typing import TextIO

_CLOSEST = {"±": "+/-", "█": "#", "■": "#", "→": "->", "…": "..."}
_NO_DOTS, _ALL_DOTS = "\u2800", "\u28ff"  # braille, as curves are drawn with
_ERRORS = "bertbench.closest"


def use_closest_signs(stream: TextIO) -> None:
    """Let a stream write the closest sign for a letter that its encoding doesn't have, an escape if there is none."""
    codecs.register_error(_ERRORS, _closest)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_ERRORS)


def _closest(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError), "the stream is written"
    letters = error.object[error.start : error.end]
    return "".join(map(_sign, letters)), error.end


def _sign(letter: str) -> str:
    if _NO_DOTS <= letter <= _ALL_DOTS:
        return " " if letter == _NO_DOTS else "*"
    return _CLOSEST.get(letter) or letter.encode("ascii", "backslashreplace").decode()
