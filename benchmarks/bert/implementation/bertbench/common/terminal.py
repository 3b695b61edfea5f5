"""Print on terminals that know fewer letters than Unicode, such as ASCII's, with the closest signs that they have."""

import codecs
import io
import os
import shlex
from typing import TextIO

_CLOSEST = {"±": "+/-", "█": "#", "■": "#", "→": "->", "…": "..."}
_ERRORS = "bertbench.closest"


def use_closest_signs(stream: TextIO) -> None:
    """Let a stream write the closest sign for a letter that its encoding doesn't have, an escape if there is none."""
    codecs.register_error(_ERRORS, _closest)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_ERRORS)


def shell_word(text: str, encoding: str | None) -> str:
    r"""Return a word that a shell reads as `text`, in letters of a stream's encoding.

    A path need not be text: bytes that no letter stands for are escaped as bash, zsh and ksh read them, `$'l\xe9'`.
    """
    try:
        text.encode(encoding or "ascii")
    except UnicodeEncodeError:
        escaped = "".join(map(_escaped, os.fsencode(text)))
        return f"$'{escaped}'"
    return shlex.quote(text)


def _escaped(byte: int) -> str:
    letter = chr(byte)
    is_plain = letter.isascii() and letter.isprintable() and letter not in "'\\"
    return letter if is_plain else f"\\x{byte:02x}"


def _closest(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError), "the stream is written"
    letters = error.object[error.start : error.end]
    signs = [_CLOSEST.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in letters]
    return "".join(signs), error.end
