"""Split text into words as MLPerf's reference does, to the last code point: white space, case, accents, punctuation.

This is the BasicTokenizer of google-research/bert with do_lower_case, under Python 3.7.6. That Python has
Unicode 11.0, so a character assigned later has no category and no case here. unicode_11.json holds the needed part of
Unicode 11.0, and what newer Pythons must not see: `hidden` lists code points that had no meaning in 11.0, and
`stand_ins` replaces code points that have changed by others that behave as they did. How a word is split depends on the
word alone, so callers may cache words.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import chain, groupby
from pathlib import Path
from unicodedata import combining, normalize

TABLES = Path(__file__).with_name("unicode_11.json")
# Each ideograph is a word; these are the reference's blocks, older than its Unicode.
_IDEOGRAPHS = "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"
_ASCII_PUNCTUATION = "21-2F 3A-40 5B-60 7B-7E"
# str.split cuts at these control characters, but the reference drops them before it splits.
_DROPPED_BEFORE_SPLIT = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
# Python sorts a run of combining marks in quadratic time: 20,000 pairs of them would take 13 s.
_QUICKLY_SORTED = 1000  # characters
_HIDDEN = "\uffff"  # Unicode never assigns it: it has no case and no accent


class _Ranges:
    """A set of code points."""

    def __init__(self, *lines: str) -> None:
        ranges = []
        for word in " ".join(lines).split():  # 2B820-2CEAF, or one code point
            first, _, last = word.partition("-")
            ranges.append((int(first, 16), int(last or first, 16) + 1))
        self._bounds = list(chain.from_iterable(sorted(ranges)))  # alternately where a range begins and ends

    def __contains__(self, code: int) -> bool:
        return bisect_right(self._bounds, code) % 2 == 1


class _Translation(dict[int, str]):
    """A table for str.translate; a rule adds a character's entry when it first occurs."""

    def __init__(self, rule: Callable[[int], str]) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = self._rule(code)
        return self[code]


_UNICODE = json.loads(TABLES.read_text(encoding="utf-8"))
_CONTROLS = _Ranges(*_UNICODE["categories"]["Cc"], *_UNICODE["categories"]["Cf"])
_SPACES = _Ranges(*_UNICODE["categories"]["Zs"])
_MARKS = _Ranges(*_UNICODE["categories"]["Mn"])
_PUNCTUATION = _Ranges(*_UNICODE["categories"]["P"])
_ASCII = _Ranges(_ASCII_PUNCTUATION)
_APART = _Ranges(_IDEOGRAPHS)
_NEWER = _Ranges(*_UNICODE["hidden"])
_STAND_INS = {int(code, 16): chr(int(other, 16)) for code, other in _UNICODE["stand_ins"].items()}


def _cleaned(code: int) -> str:
    if chr(code) in " \t\n\r" or code in _SPACES:
        return " "
    if code in (0, 0xFFFD) or code in _CONTROLS:
        return ""
    kept = _HIDDEN if code in _NEWER else _STAND_INS.get(code, chr(code))
    return f" {kept} " if code in _APART else kept


def _without_mark(code: int) -> str:
    return "" if code in _MARKS else chr(code)


def _punctuation_apart(code: int) -> str:
    return f" {chr(code)} " if code in _ASCII or code in _PUNCTUATION else chr(code)


_CLEAN = _Translation(_cleaned)
_UNMARK = _Translation(_without_mark)
_SPLIT = _Translation(_punctuation_apart)


def chunks(text: str) -> list[str]:
    """Cut text at white space; `words` splits each of the parts as it would split them all together."""
    return _DROPPED_BEFORE_SPLIT.sub("", text).split()


def normalized(text: str) -> str:
    """Return the text in lower case, without control characters and accents, and with spaces around ideographs.

    This Python's newer tables lower-case and decompose, so characters unknown to Unicode 11.0 are hidden from them.
    """
    lowered = _decomposed(text.translate(_CLEAN).lower())
    if _HIDDEN in lowered:
        hidden = (character for character in text if _HIDDEN in _CLEAN[ord(character)])  # none is dropped or reordered
        lowered = "".join(next(hidden) if character == _HIDDEN else character for character in lowered)
    return lowered.translate(_UNMARK)


def _decomposed(text: str) -> str:
    """Return a text's canonical decomposition (NFD), in linear time."""
    if len(text) <= _QUICKLY_SORTED:
        return normalize("NFD", text)
    characters = "".join(normalize("NFD", character) for character in text)
    runs = groupby(characters, lambda character: combining(character) > 0)
    return "".join(chain.from_iterable(sorted(run, key=combining) if is_marks else run for is_marks, run in runs))


def words(text: str) -> list[str]:
    """Return the words of a text; every punctuation character is a word of its own."""
    return normalized(text).translate(_SPLIT).split()
