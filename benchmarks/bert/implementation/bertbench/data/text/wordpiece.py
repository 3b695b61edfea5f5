"""Split a word into the longest vocabulary entries, from left to right: WordPiece.

Greedy longest match first (Wu et al., 2016, arXiv 1609.08144; google-research/bert's WordpieceTokenizer).
"""

from collections.abc import Sequence

LONGEST_WORD = 200  # characters; the reference doesn't try to split a longer word


class WordPieces:
    """Vocabulary entries in the order of their ids; continuations of a word begin with ##."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._ids = {entry: number for number, entry in enumerate(entries)}
        self._unknown = [self._ids["[UNK]"]]
        self._longest = max(map(len, entries))

    def ids(self, word: str) -> list[int]:
        """Return the ids of a word's pieces; [UNK] alone if it is too long or some part has no entry."""
        if len(word) > LONGEST_WORD:
            return self._unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                number = self._ids.get(prefix + word[start:end])
                if number is not None:
                    break
            else:
                return self._unknown
            found.append(number)
            start = end
        return found
