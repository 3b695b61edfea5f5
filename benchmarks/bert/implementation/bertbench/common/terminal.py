"""Print on terminals that lack Unicode characters, such as ASCII terminals, with the closest ones that they have."""

import codecs
import io
import os
import shlex
from typing import TextIO

_CLOSEST = {"±": "+/-", "█": "#", "→": "->", "…": "..."}
_ERRORS = "bertbench.closest"


def use_closest_signs(stream: TextIO) -> None:
    """Let a stream replace a character that its encoding lacks by the closest one, or else by an escape."""
    codecs.register_error(_ERRORS, _closest)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_ERRORS)


def shell_word(text: str, encoding: str | None) -> str:
    r"""Return a word that a shell reads as `text`, in characters of a stream's encoding.

    A path need not be text: bytes without a character are escaped in the way that bash, zsh and ksh read, `$'l\xe9'`.
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
