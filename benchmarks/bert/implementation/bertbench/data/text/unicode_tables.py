"""Make unicode_11.json: the Unicode properties that the reference's tokenizer saw, from the Python that ran it.

Run `python -m bertbench.data.text.unicode_tables PYTHON_3_7` with the path of any Python 3.7: all have Unicode 11.0,
like the reference's 3.7.6. That Python runs this same file, so the file uses nothing newer.

The current Python lower-cases and decomposes words. Its Unicode is newer, so the tables also list the characters to
hide from it: those not yet assigned in 11.0, and those with changed properties.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import textwrap
import unicodedata
from pathlib import Path

TABLES = Path(__file__).with_name("unicode_11.json")
_CATEGORIES = ("Cc", "Cf", "Zs", "Mn", "P")  # P: Pc, Pd, Ps, Pe, Pi, Pf and Po
_CODES = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
_SIGMA = "\u03a3"
_NO_EFFECT = (0, "\u03c3", "\u03c3")  # no combining class; a sigma behind it, or behind a and it, ends no word


def behaviour() -> dict[str, list]:
    """Return this Python's Unicode properties of every code point.

    "casing" decides lower() and NFD of a text: a character's own lower case and decomposition, its combining class, and
    whether lower() skips it or takes it for a letter when it looks from a capital sigma for the word's end.
    """
    characters = [chr(code) for code in _CODES]
    return {
        "version": [platform.python_version(), unicodedata.unidata_version],
        "category": [unicodedata.category(character) for character in characters],
        "space": [character.isspace() for character in characters],
        "casing": [
            [
                character.lower(),
                unicodedata.normalize("NFD", character),
                unicodedata.combining(character),
                (character + _SIGMA).lower()[-1],
                ("a" + character + _SIGMA).lower()[-1],
            ]
            for character in characters
        ],
    }


def ranges(codes: list[int]) -> list[str]:
    """Return rising code points as lines of hexadecimal ranges, "41-5A 61"."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    words = [f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in runs]
    return textwrap.wrap(" ".join(words), 110, break_on_hyphens=False)


def tables(then: dict[str, list], now: dict[str, list]) -> dict[str, object]:
    """Return the content of unicode_11.json from the behaviour of Python 3.7 and of this Python.

    Raises ValueError if a character changed and neither hiding it nor a stand-in helps.
    """
    if then["version"][1] != "11.0.0":
        raise ValueError(f"found Unicode {then['version'][1]}, expected 11.0.0; give the path of a Python 3.7")
    if then["space"] != now["space"]:
        raise ValueError("str.split sees other white space than it did; the tables can't express that")
    hidden, stand_ins = [], {}
    for place, code in enumerate(_CODES):
        casing = then["casing"][place]
        changed = casing != now["casing"][place]
        if then["category"][place] == "Cn" or (changed and casing == [chr(code), chr(code), *_NO_EFFECT]):
            hidden.append(code)
        elif changed:
            stand_ins[f"{code:X}"] = f"{_stand_in(place, then, now):X}"
    return {
        "origin": {
            "made_by": "python -m bertbench.data.text.unicode_tables PYTHON_3_7",
            "unicode": "unicodedata {1} of Python {0}".format(*then["version"]),
            "compared_with": "unicodedata {1} of Python {0}".format(*now["version"]),
        },
        "categories": {
            name: ranges([code for place, code in enumerate(_CODES) if then["category"][place].startswith(name)])
            for name in _CATEGORIES
        },
        "hidden": ranges(hidden),
        "stand_ins": stand_ins,
    }


def _stand_in(place: int, then: dict[str, list], now: dict[str, list]) -> int:
    """Find an accent that still behaves as the changed one did; both are dropped in the end."""
    code, casing = _CODES[place], then["casing"][place]
    if then["category"][place] == "Mn" and casing[:2] == [chr(code), chr(code)]:
        for other, category, before, after in zip(_CODES, then["category"], then["casing"], now["casing"], strict=True):
            if category == "Mn" and before == after == [chr(other), chr(other), *casing[2:]]:
                return other
    raise ValueError(f"U+{code:04X} changed, and no stand-in was found")


def main(words: list[str]) -> int:
    """Write the tables, or, run by Python 3.7, print its behaviour."""
    if words == ["--behaviour"]:
        print(json.dumps(behaviour()))
        return 0
    if len(words) != 1:
        print("usage: python -m bertbench.data.text.unicode_tables PYTHON_3_7", file=sys.stderr)
        return 2
    printed = subprocess.run([words[0], __file__, "--behaviour"], stdout=subprocess.PIPE, check=True)
    TABLES.write_text(json.dumps(tables(json.loads(printed.stdout), behaviour()), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
