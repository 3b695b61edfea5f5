"""What a rule between settings is: a generator of problems, and the settings that it ties together."""

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

    find: Callable[[Settings], Iterator[str]]
    settings: tuple[str, ...]

    def problems(self, settings: Settings) -> Iterator[Problem]:
        """Yield what the rule finds; nothing where a setting has no valid value, because that has its own message."""
        try:
            for text in self.find(settings):
                yield Problem(text, self.settings)
        except UnsettledError:
            return


def rule(*settings: str) -> Callable[[Callable[[Settings], Iterator[str]]], Rule]:
    """Make a rule of a generator of texts; `settings` are the names that it ties together."""
    return lambda find: Rule(find, settings)


def broken(rules: Iterable[Rule], settings: Settings) -> Iterator[Problem]:
    """Yield the problems that any of the rules finds."""
    for one in rules:
        yield from one.problems(settings)
