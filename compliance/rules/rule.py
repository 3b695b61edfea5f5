"""Define a rule, a breach of it, and a gap: what a log doesn't let a rule see.

A breach decides the verdict. A gap stands under `not applied`; with --strict it fails the log if the rules ask for the
evidence that is missing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from compliance.read.case import Case
from compliance.read.record import shown

TRAINING_RULES = "training_rules.adoc"
SUBMISSION_RULES = "submission_rules.adoc"
POWER_RULES = "power_measurement.adoc"
JUDGE = "docs/compliance.md"
COMMAND_LINE = "command line"
JSON_STANDARD = "RFC 8259"
LOG_CHECKER = "mlcommons/logging, compliance_checker"
LOG_PARSER = "mlcommons/logging, mlp_parser"
PACKAGE_CHECKER = "mlcommons/logging, package_checker"
OLDEST = "0.7.0"
NEWEST = "5.0.0"
_WITHOUT_ROUNDS = (COMMAND_LINE, JSON_STANDARD, JUDGE, POWER_RULES)
"""What isn't of MLPerf, and the one document of MLPerf that isn't dated by rounds."""
OLDEST_TEXT = "1.0.0"
"""The oldest round whose documents we have read. A rule of a document begins with round 0.7 only if that round's
checker has it too."""


class Source(NamedTuple):
    """Where a rule stands: a document and the heading of its section, or a program of MLCommons and its part."""

    document: str
    section: str


class Fault(NamedTuple):
    """What breaks a rule: `expected` replaces the rule's `says`; `line` counts from 1, None if no line is at fault."""

    line: int | None
    found: str
    expected: str | None = None


class Gap(NamedTuple):
    """Why a rule can't be checked; `asked`: the rules ask for the evidence that is missing."""

    reason: str
    asked: bool = True


Checked = Iterator[Fault | Gap]
Check = Callable[[Case], Iterable[Fault | Gap]]


@dataclass(frozen=True)
class Rule:
    """A rule: where it stands, what it says in our words, what to do about a breach, and its first round.

    `check` is None for a rule about a package, and where the verdict comes from elsewhere. `doubtful`: a log that
    breaks the rule has no single meaning and can't be judged.
    """

    id: str
    source: Source
    says: str
    remedy: str
    since: str = OLDEST_TEXT
    doubtful: bool = False
    check: Check | None = None

    def __reduce__(self) -> tuple[type["Rule"], tuple[Any, ...]]:
        """Leave out the check: a breach is sent between processes, and a function by its name, which is the rule's."""
        return Rule, (self.id, self.source, self.says, self.remedy, self.since, self.doubtful)

    @property
    def rounds(self) -> str:
        """Return the rounds whose text or program has the rule, as 1.0 to 5.0; none if its source isn't dated."""
        if self.source.document in _WITHOUT_ROUNDS:
            return ""
        oldest = max(self.since, OLDEST_TEXT) if self.source.document.endswith(".adoc") else self.since
        return f"{oldest.removesuffix('.0')} to {NEWEST.removesuffix('.0')}"

    def applies_to(self, ruleset: str) -> bool:
        """Return whether the round's text, or in round 0.7 its log checker, has the rule."""
        return ruleset >= self.since

    def breach(self, found: str, expected: str | None = None, line: int | None = None) -> "Breach":
        """Return a breach of this rule."""
        return Breach(self, found, expected or self.says, line)

    def unchecked(self, reason: str, asked: bool = True) -> "Unchecked":
        """Return that this rule could not be checked."""
        return Unchecked(self.id, reason, asked)

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `rules --json` prints."""
        return {
            "id": self.id,
            "document": self.source.document,
            "section": self.source.section,
            "rounds": self.rounds,
            "says": self.says,
            "remedy": self.remedy,
        }


class Breach(NamedTuple):
    """A rule that a log or a package breaks; it decides the verdict."""

    rule: Rule
    found: str
    expected: str
    line: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        return {
            "rule": self.rule.id,
            "line": self.line,
            "found": self.found,
            "expected": self.expected,
            "document": self.rule.source.document,
            "section": self.rule.source.section,
            "rounds": self.rule.rounds,
            "remedy": self.rule.remedy,
        }


class Unchecked(NamedTuple):
    """A rule or a question that was not applied, and why; `asked`: the rules ask for the evidence that is missing."""

    rule: str
    reason: str
    asked: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        return {"rule": self.rule, "reason": self.reason, "missing_evidence": self.asked}


def rule(
    name: str, source: Source, says: str, remedy: str, since: str = OLDEST_TEXT, doubtful: bool = False
) -> Callable[[Check], Rule]:
    """Make a rule, whose id is `name`, of the function that checks it on a log."""

    def with_check(check: Check) -> Rule:
        return Rule(name, source, says, remedy, since, doubtful, check)

    return with_check


def unsound(case: Case, key: str, is_sound: Callable[[Any], object], expected: str | None = None) -> Iterator[Fault]:
    """Find a key's values that are not sound."""
    for event in case.all(key):
        if not is_sound(event.value):
            yield Fault(event.line, f"{key} {shown(event.value)}", expected)
