"""Define a finding in a log, and the rule behind it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from compliance.log import Log
from compliance.record import shown
from compliance.run import RunFacts, number

Severity = Literal["error", "warning", "info"]


def named(severity: Severity) -> str:
    """Return a severity as people read it: a warning is what a referee asks about, a note is for information."""
    return "note" if severity == "info" else severity


@dataclass(frozen=True)
class Finding:
    """A fault in a log, or a note (severity info); `line` counts from 1, and is None if no line is at fault."""

    rule: str
    severity: Severity
    found: str
    expected: str
    remedy: str
    line: int | None = None


Findings = Iterator[Finding]


class Case(RunFacts):
    """A rule's input: the facts of a log, under one ruleset.

    `system` is the description beside the log; `batch` is the global batch size, or None unless it is above 0.
    """

    def __init__(self, log: Log, ruleset: str, required_division: str | None, system: dict[str, str]) -> None:
        super().__init__(log.events)
        self.log, self.ruleset, self.required_division, self.system = log, ruleset, required_division, system
        self.closed, batch = self.division == "closed", number(self.global_batch_size)
        self.batch = batch if batch and batch > 0 else None
        self.not_applied: list[tuple[str, str]] = []

    def skip(self, rule: str, reason: str) -> None:
        """List a rule that this log switches off: a cheat may have meant it to."""
        self.not_applied.append((rule, reason))

    def number(self, key: str) -> float | None:
        """Return the number that the first event of a key gives, or None."""
        return number(self.value(key))


class Breach(NamedTuple):
    """One breach of a rule; `severity` and `expected` replace the rule's own."""

    line: int | None
    found: str
    expected: str | None = None
    severity: Severity | None = None


Breaches = Iterator[Breach]
Check = Callable[[Case], Iterable[Breach]]


def odd(
    case: Case, key: str, sound: Callable[[Any], object], expected: str | None = None, severity: Severity | None = None
) -> Breaches:
    """Find a key's values that are not sound."""
    for event in case.all(key):
        if not sound(event.value):
            yield Breach(event.line, f"{key} {shown(event.value)}", expected, severity)


class Rule(NamedTuple):
    """A rule; `severity` cannot-judge means that the log's content can't be trusted.

    `check` is None if the verdict comes from elsewhere: the official checker, or a file that can't be read.
    """

    id: str
    sentence: str
    source: str
    severity: Severity | Literal["cannot-judge"]
    remedy: str
    check: Check | None = None
