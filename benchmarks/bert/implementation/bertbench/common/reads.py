"""Say what a command reads of a system file, so that no setting that a user gives is ignored.

Each command declares its `Reads` beside its own code. config/given.py refuses, by name, what the command can't honour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Unread:
    """A setting that the command can't honour."""

    remedy: str
    """What can honour it, or what to do."""
    accepted: tuple[object, ...] = ()
    """The values that say what the command does anyway."""

    def accepts(self, value: object) -> bool:
        """Return whether this value says what the command does anyway; true and 1 are different values here."""
        return any(type(value) is type(other) and value == other for other in self.accepted)


@dataclass(frozen=True)
class Choice:
    """A setting of which the command can honour some values only."""

    values: tuple[object, ...]
    because: str
    """Why it can't honour others."""


@dataclass(frozen=True)
class Reads:
    """What one command, or one mode of it, reads of a system file.

    Names are those of sections or of single settings. Where several fit a setting, the longest counts.
    """

    command: str
    """The command as errors name it."""
    sections: tuple[str, ...] = ()
    """What the command honours."""
    exceptions: Mapping[str, Unread | Choice] = field(default_factory=dict)
    """What it can't honour, or not entirely."""
    others: Unread | None = None
    """What holds for every other setting; None: it can't change the command's result, so it is accepted."""
    task: Literal["pretrain", "squad"] | None = "pretrain"
    """The task of the systems that it takes; None takes all."""
    trains: bool = False
    """Whether it trains by these settings, so that one can switch off another (ONLY_WITH in config/given.py)."""

    def limit_on(self, setting: str) -> Unread | Choice | None:
        """Return what keeps the command from honouring a setting of this dotted name.

        None if nothing does: the command honours the setting, or the setting can't change the command's result.
        """
        name = setting
        while name:
            if name in self.exceptions:
                return self.exceptions[name]
            if name in self.sections:
                return None
            name = name.rpartition(".")[0]
        return self.others
