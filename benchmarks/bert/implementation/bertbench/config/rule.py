"""What a rule between settings is: the settings that it ties together, and a function that says what is wrong."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from bertbench.common.section import UnsettledError
from bertbench.config.settings import Settings


class Problem(NamedTuple):
    """Settings that don't go together."""

    text: str
    """What was found, what was expected, and the remedy."""
    settings: tuple[str, ...]
    """Names of the settings that decide it."""


class Rule(NamedTuple):
    """A rule, which runs alone: a file with five mistakes gets five messages."""

    settings: str
    """Names of the settings that it ties together, separated by spaces."""
    find: Callable[[Settings], object]
    """Returns the text of a problem, or something false."""


def broken(rules: Iterable[Rule], settings: Settings) -> Iterator[Problem]:
    """Yield the problems that any of the rules finds.

    A rule says nothing where a setting has no valid value, because that has its own message.
    """
    for rule in rules:
        try:
            text = rule.find(settings)
        except UnsettledError:
            continue
        if text:
            yield Problem(str(text), tuple(rule.settings.split()))
