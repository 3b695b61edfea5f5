"""The reference's tokenizer written for reading, a character at a time: what the fast one must equal.

Of Unicode 11.0 it takes only which characters were assigned; the rest it asks of this Python's newer Unicode, less
the changes listed here. Changes: General_Category of Unicode 12.0 to 14.0; Word_Break of U+055F.
"""

import json
import unicodedata
from functools import lru_cache

from bertbench.data.text.samples import Document
from bertbench.data.text.words import TABLES

CATEGORY_IN_11 = {"\u166d": "Po", "\u1734": "Mn", "\u1cf2": "Mc", "\u1cf3": "Mc", "\ua9bd": "Mc"}
PASSED_OVER_IN_11 = {"\u055f": False, "\u1734": True, "\ua9bd": False}
IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
NEWER = [
    tuple(int(end, 16) for end in run.split("-"))
    for line in json.loads(TABLES.read_text())["hidden"]
    for run in line.split()
]


@lru_cache(None)
def category(character: str) -> str:
    changed = character in CATEGORY_IN_11 or character in PASSED_OVER_IN_11
    if not changed and any(run[0] <= ord(character) <= run[-1] for run in NEWER):
        return "Cn"
    return CATEGORY_IN_11.get(character, unicodedata.category(character))


def cleaned(text: str) -> str:
    kept = []
    for character in text:
        if character in " \t\n\r" or category(character) == "Zs":
            kept.append(" ")
        elif character not in "\0\ufffd" and category(character) not in ("Cc", "Cf"):
            kept.append(f" {character} " if is_ideograph(ord(character)) else character)
    return "".join(kept)


def is_ideograph(code: int) -> bool:
    return any(first <= code <= last for first, last in IDEOGRAPHS)


def is_cased(character: str) -> bool:
    return category(character) != "Cn" and (character + "\u03a3").lower().endswith("\u03c2")


def is_passed_over(character: str) -> bool:
    if category(character) == "Cn" or is_cased(character):
        return False
    return PASSED_OVER_IN_11.get(character, ("a" + character + "\u03a3").lower().endswith("\u03c2"))


def next_to_a_letter(neighbours: str) -> bool:
    """Whether the first character that isn't passed over, on the way from a sigma, is a cased letter."""
    return next((is_cased(character) for character in neighbours if not is_passed_over(character)), False)


def lowered(word: str) -> str:
    lower = []
    for place, character in enumerate(word):
        if character == "\u03a3":
            last = next_to_a_letter(word[:place][::-1]) and not next_to_a_letter(word[place + 1 :])
            lower.append("\u03c2" if last else "\u03c3")
        else:
            lower.append(character if category(character) == "Cn" else character.lower())
    return "".join(lower)


def decomposed(word: str) -> str:
    parts = []
    for character in word:
        parts += [character] if category(character) == "Cn" else unicodedata.normalize("NFD", character)
    classes = [0 if category(part) == "Cn" else unicodedata.combining(part) for part in parts]
    for _ in parts:  # canonical ordering, as a bubble sort
        for place in range(len(parts) - 1):
            if classes[place] > classes[place + 1] > 0:
                parts[place : place + 2] = parts[place + 1], parts[place]
                classes[place : place + 2] = classes[place + 1], classes[place]
    return "".join(parts)


def is_punctuation(character: str) -> bool:
    if ord(character) < 128:
        return character in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    return category(character).startswith("P")


def plain_words(text: str) -> list[str]:
    found = []
    for word in cleaned(text).split():
        bare = [character for character in decomposed(lowered(word)) if category(character) != "Mn"]
        found += "".join(f" {one} " if is_punctuation(one) else one for one in bare).split()
    return found


def plain_ids(text: str, entries: tuple[str, ...]) -> list[int]:
    return [number for word in plain_words(text) for number in plain_pieces(word, entries)]


def plain_pieces(word: str, entries: tuple[str, ...]) -> list[int]:
    pieces: list[int] = []
    start = 0
    while start < len(word) <= 200:
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in entries:
                pieces.append(entries.index(piece))
                start = end
                break
        else:
            return [entries.index("[UNK]")]
    return pieces or [entries.index("[UNK]")]


def plain_documents(content: bytes, entries: tuple[str, ...]) -> list[Document]:
    """Documents of a text file, its lines read as TensorFlow 1.15's GFile does: no carriage return survives."""
    documents: list[Document] = [[]]
    for line in content.replace(b"\r", b"").decode().split("\n"):
        if not line.strip():
            documents.append([])
        elif ids := plain_ids(line.strip(), entries):
            documents[-1].append(ids)
    return [document for document in documents if document]
