"""What is wrong in a log, and the rule that says so."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from compliance.log import Log
from compliance.run import RunFacts

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """Something wrong in a log, or with severity info a note; `line` counts from 1, None where no line is to blame."""

    rule: str
    severity: Severity
    line: int | None
    found: str
    expected: str
    remedy: str


class Case(NamedTuple):
    """What a rule looks at: one log under one ruleset."""

    path: Path
    log: Log
    facts: RunFacts
    ruleset: str
    required_division: str | None = None
    system: dict[str, str] = {}  # noqa: RUF012 - the description beside the log, never written to

    @property
    def closed(self) -> bool:
        """Whether the log says that it is of the closed division."""
        return self.facts.division == "closed"


class Breach(NamedTuple):
    """One place where a rule is broken; `severity` and `expected` stand in for the rule's own."""

    line: int | None
    found: str
    expected: str | None = None
    severity: Severity | None = None


class Rule(NamedTuple):
    """A rule: `severity` cannot-judge means that the log can't be trusted to say what it seems to say.

    `check` is None where the verdict comes from elsewhere: the official checker, or a file that can't be read.
    """

    id: str
    sentence: str
    source: str
    severity: Severity | Literal["cannot-judge"]
    remedy: str
    check: Callable[[Case], Iterable[Breach]] | None = None
