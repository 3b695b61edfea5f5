"""Split a word into the longest vocabulary entries, from left to right: WordPiece.

Greedy longest match first (Wu et al., 2016, arXiv 1609.08144; google-research/bert's WordpieceTokenizer).
"""

from collections.abc import Mapping

LONGEST_WORD = 200  # characters; the reference doesn't try to split a longer word


def pieces(word: str, ids: Mapping[str, int]) -> list[int]:
    """Return the ids of a word's pieces; [UNK] alone if it is too long or some part has no entry.

    `ids` are those of all entries; continuations of a word begin with ##.
    """
    found: list[int] = []
    start = 0
    while start < len(word) <= LONGEST_WORD:
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            number = ids.get(prefix + word[start:end])
            if number is not None:
                break
        else:
            break
        found.append(number)
        start = end
    return found if start == len(word) else [ids["[UNK]"]]
