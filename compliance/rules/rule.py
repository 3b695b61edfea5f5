"""Define a rule, a breach of it, and a gap, where a log doesn't show whether it follows the rule.

A breach decides the verdict. A gap is listed under `not applied`; with --strict it fails the log if the rules ask for
the missing evidence.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from compliance.read.case import Case
from compliance.read.record import shown

TRAINING_RULES = "training_rules.adoc"
SUBMISSION_RULES = "submission_rules.adoc"
POWER_RULES = "power_measurement.adoc"
JUDGE = "docs/judging.md"
COMMAND_LINE = "command line"
JSON_STANDARD = "RFC 8259"
LOG_CHECKER = "mlcommons/logging, compliance_checker"
LOG_PARSER = "mlcommons/logging, mlp_parser"
PACKAGE_CHECKER = "mlcommons/logging, package_checker"
OLDEST = "0.7.0"
NEWEST = "5.0.0"
_WITHOUT_ROUNDS = (COMMAND_LINE, JSON_STANDARD, JUDGE, POWER_RULES)
"""Sources other than MLPerf's, and the one document of MLPerf that has no rounds."""
OLDEST_TEXT = "1.0.0"
"""The oldest round whose documents we have read. We apply a document's rule to round 0.7 only if that round's checker
has it, too."""


class Source(NamedTuple):
    """Where to find a rule: a document and the heading of a section, or a program of MLCommons and a part of it."""

    document: str
    section: str


class Fault(NamedTuple):
    """What breaks a rule. `expected` replaces the rule's `says`; `line` counts from 1, None for the whole log."""

    line: int | None
    found: str
    expected: str | None = None


class Gap(NamedTuple):
    """Why a rule can't be checked; `asked` is true if the rules ask for the missing evidence."""

    reason: str
    asked: bool = True


Checked = Iterator[Fault | Gap]
Check = Callable[[Case], Iterable[Fault | Gap]]


@dataclass(frozen=True)
class Rule:
    """A rule: where to find it, what it says in our words, what to do about a breach, and its first round.

    `check` is None for a rule about a package, and for a rule that other code applies. A log that breaks a `doubtful`
    rule has no single meaning, and can't be judged.
    """

    id: str
    source: Source
    says: str
    remedy: str
    since: str = OLDEST_TEXT
    doubtful: bool = False
    check: Check | None = None

    def __reduce__(self) -> tuple[type["Rule"], tuple[Any, ...]]:
        """Leave out the check: processes send each other breaches, and pickle can't find the function by its name."""
        return Rule, (self.id, self.source, self.says, self.remedy, self.since, self.doubtful)

    @property
    def rounds(self) -> str:
        """Return the rounds whose text or program has the rule, such as 1.0 to 5.0; "" if the source has none."""
        if self.source.document in _WITHOUT_ROUNDS:
            return ""
        oldest = max(self.since, OLDEST_TEXT) if self.source.document.endswith(".adoc") else self.since
        return f"{oldest.removesuffix('.0')} to {NEWEST.removesuffix('.0')}"

    def applies_to(self, ruleset: str) -> bool:
        """Return whether the round's text, or for round 0.7 its log checker, has the rule."""
        return ruleset >= self.since

    def breach(self, found: str, expected: str | None = None, line: int | None = None) -> "Breach":
        """Return a breach of this rule."""
        return Breach(self, found, expected or self.says, line)

    def unchecked(self, reason: str, asked: bool = True) -> "Unchecked":
        """Return a note that this rule could not be checked."""
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
    """A breach of a rule by a log or a package; it decides the verdict."""

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
    """A rule that was not applied, and why; `asked` is true if the rules ask for the missing evidence."""

    rule: str
    reason: str
    asked: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the fields that `--json` prints."""
        return {"rule": self.rule, "reason": self.reason, "missing_evidence": self.asked}


def rule(
    name: str, source: Source, says: str, remedy: str, since: str = OLDEST_TEXT, doubtful: bool = False
) -> Callable[[Check], Rule]:
    """Turn the function that checks a log into a rule with the id `name`."""

    def with_check(check: Check) -> Rule:
        return Rule(name, source, says, remedy, since, doubtful, check)

    return with_check


def unsound(case: Case, key: str, is_sound: Callable[[Any], object], expected: str | None = None) -> Iterator[Fault]:
    """Find the values of a key that aren't sound."""
    for event in case.all(key):
        if not is_sound(event.value):
            yield Fault(event.line, f"{key} {shown(event.value)}", expected)
