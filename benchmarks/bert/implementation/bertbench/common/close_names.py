"""Find the names that a misspelt one may mean: of commands, options, settings and systems."""

import difflib
import re
from collections.abc import Collection

_SIMILARITY = 0.7  # difflib's ratio; its default of 0.6 would take `nodes` for `sw_notes`


def close_names(typed: str, known: Collection[str]) -> list[str]:
    """Return the known names that have all words of `typed`, as number_of_nodes has nodes, or else a similar one.

    The list is empty if there is neither.
    """
    words = _words(typed)
    with_all_words = sorted((name for name in known if words <= _words(name)), key=len)
    return with_all_words or difflib.get_close_matches(typed, known, n=1, cutoff=_SIMILARITY)


def did_you_mean(names: Collection[str]) -> str:
    """Return the question whether one of `names` is meant."""
    return f"did you mean {' or '.join(names)}?"


def _words(name: str) -> set[str]:
    return set(re.split("[-_.]+", name.lower().strip("-")))
