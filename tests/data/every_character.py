"""Digests of how every code point is split into words, by our splitter or by the reference's.

`python3.7 every_character.py tokenization.py > every_character.sha256` takes them of the reference, a line for each
plane of 65,536 code points. tokenization.py is in the cleanup_scripts of MLPerf's reference; it needs tensorflow 1.15.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable  # which Python 3.7 can't subscript

# Alone, inside a word, doubled, after and before an accent, around the sigma that lower() writes otherwise at a
# word's end, and between marks of higher and lower combining classes, which NFD sorts.
CONTEXTS = (
    "{0} ab{0}cd {0}{0} e\u0301{0} {0}\u0301e A{0}\u03a3 \u03a3{0} A\u03a3{0} A\u03a3{0}B \u0391{0}\u0301\u03a3 "
    "x\u302f{0}\u0327\u302e. B{0}"
)


def digest(plane: int, words: Callable[[str], list[str]]) -> str:
    """Return the SHA-256 of the words that `words` makes of every code point of a plane, in the contexts."""
    lines = hashlib.sha256()
    for code in range(plane << 16, (plane + 1) << 16):
        if not 0xD800 <= code <= 0xDFFF:
            lines.update((" ".join(words(CONTEXTS.format(chr(code)))) + "\n").encode())
    return lines.hexdigest()


if __name__ == "__main__":
    specification = importlib.util.spec_from_file_location("tokenization", sys.argv[1])
    tokenization = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tokenization)
    tokenization.FLAGS(sys.argv[:1])
    tokenizer = tokenization.BasicTokenizer(do_lower_case=True)
    for number in range(17):
        print(digest(number, tokenizer.tokenize), flush=True)
