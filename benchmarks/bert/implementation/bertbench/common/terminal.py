"""Print on terminals that know fewer letters than Unicode, such as ASCII's, with the closest signs that they have."""

import codecs
import io
from typing import TextIO

_CLOSEST = {"±": "+/-", "█": "#", "■": "#", "→": "->", "…": "..."}
_ERRORS = "bertbench.closest"


def use_closest_signs(stream: TextIO) -> None:
    """Let a stream write the closest sign for a letter that its encoding doesn't have, an escape if there is none."""
    codecs.register_error(_ERRORS, _closest)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_ERRORS)


def _closest(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError), "the stream is written"
    letters = error.object[error.start : error.end]
    signs = (_CLOSEST.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters)
    return "".join(signs), error.end
