"""Define a rule between settings: a function that says what doesn't go together, or the values that a setting may have.

A rule says nothing if its numbers follow from something that another rule refuses. The rules are in batch_rules.py,
layout_rules.py, step_rules.py, closed.py and checks.py, which lists all of them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bertbench.common.section import UnsettledError
from bertbench.config.settings import Settings

Condition = Callable[[Settings], bool]

Rule = Callable[[Settings], str | None]
"""Returns what is wrong between settings, with the remedy; None if nothing is. The function's name states the rule."""


@dataclass(frozen=True)
class AllowedValues:
    """The rule that `setting` has one of `values` where `applies` is true."""

    setting: str
    """Its dotted name."""
    values: Sequence[object]
    applies: Condition
    because: str
    """Why another value is refused there."""
    instead: str
    """What to do instead, in order to keep another value."""

    def __call__(self, settings: Settings) -> str | None:
        """Return why the setting's value is refused; None if it isn't."""
        if not self.applies(settings):
            return None
        *sections, key = self.setting.split(".")
        section: Any = settings
        for name in sections:
            section = getattr(section, name)
        if section is None:  # the section is left out
            return None
        value = getattr(section, key)
        if value in self.values:
            return None
        choices = " or ".join(map(_shown, self.values))
        return f"{self.setting} {_shown(value)} {self.because}; set it to {choices}, or {self.instead}"


def allow_only(
    allowed: Mapping[str, Sequence[object]], where: Condition, because: str, instead: str
) -> tuple[Rule, ...]:
    """Return a rule for each setting of `allowed`: it has one of these values where the condition is true.

    Others are refused `because` of what is true there, and `instead` says how to keep them.
    """
    return tuple(AllowedValues(setting, values, where, because, instead) for setting, values in allowed.items())


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def broken_rules(rules: Iterable[Rule], settings: Settings) -> Iterator[str]:
    """Yield what any of the rules finds wrong; all rules run, so that a file with five mistakes gets five messages.

    A rule says nothing where a setting has no valid value, because that has its own message.
    """
    for rule in rules:
        with suppress(UnsettledError):
            problem = rule(settings)
            if problem is not None:
                yield problem
