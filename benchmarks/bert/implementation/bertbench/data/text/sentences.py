"""Split English prose into sentences: first step of every corpus that doesn't come one sentence a line."""

import re

# The usual abbreviations after which a full stop ends no sentence.
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|mr|mrs|dr|prof|st|no|fig|eq|approx|resp|jr|sr|inc|ltd|u\.s)|\b[a-z])\.$", re.I
)
_BOUNDARY = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9`])")


def split_sentences(paragraph: str) -> list[str]:
    """Sentences of one paragraph, white space collapsed; none is empty."""
    text = " ".join(paragraph.split())
    sentences: list[str] = []
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        if _ABBREVIATION.search(text, start, boundary.start()):
            continue
        sentences.append(text[start : boundary.end()].strip())
        start = boundary.end()
    if text[start:]:
        sentences.append(text[start:])
    return sentences
