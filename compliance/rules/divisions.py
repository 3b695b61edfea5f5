"""training_rules.adoc, "Divisions": which division a log is in, and whether it is of BERT, which we can judge."""

from collections.abc import Callable
from typing import Any

from compliance.read.case import Case
from compliance.read.description import DIVISIONS
from compliance.read.log import Event
from compliance.read.record import distinct, shown
from compliance.rules.rule import (
    COMMAND_LINE,
    JUDGE,
    OLDEST,
    SUBMISSION_RULES,
    TRAINING_RULES,
    Checked,
    Fault,
    Rule,
    Source,
    rule,
    unsound,
)

_DESCRIPTION = Source(SUBMISSION_RULES, "<system_desc_id>.json metadata")


def _stated_once(case: Case, key: str, is_sound: Callable[[Any], object]) -> Checked:
    yield from unsound(case, key, is_sound)
    values = distinct(event.value for event in case.all(key))
    if len(values) > 1 and all(is_sound(value) for value in values):
        last = case.all(key)[-1]
        yield Fault(last.line, f"{key} {shown(values)}", "one value")


def _differs(due: str | None, event: Event | None) -> Checked:
    """Find a logged division that differs from the one that is due."""
    stated = event.value if event else None
    if due in DIVISIONS and stated != due:
        yield Fault(event.line if event else None, f"division {shown(stated)}", f"division {due}")


@rule(
    "benchmark", Source(JUDGE, "What it can't see"),
    "The log is of BERT, the only benchmark whose rules the judge knows",
    "check the log with the official checker alone", since=OLDEST, doubtful=True,
)  # fmt: skip
def benchmark_is_bert(case: Case) -> Checked:
    """Find logs of another benchmark, which break no rule; the official checker finds logs that don't name any."""
    yield from _stated_once(case, "submission_benchmark", lambda value: value == "bert")


@rule(
    "division", Source(TRAINING_RULES, "Divisions"), "A run is in the closed or the open division",
    "log submission_division once, as closed or open", since=OLDEST,
)  # fmt: skip
def division_is_stated(case: Case) -> Checked:
    if case.first("submission_division") is None:
        yield Fault(None, "no submission_division")
    yield from _stated_once(case, "submission_division", lambda value: value in DIVISIONS)


@rule(
    "division-required", Source(COMMAND_LINE, "--division"), "The log is in the division that --division names",
    "omit --division, or give logs of that division", since=OLDEST,
)  # fmt: skip
def division_is_the_required_one(case: Case) -> Checked:
    yield from _differs(case.required_division, case.first("submission_division"))


@rule(
    "division-system", _DESCRIPTION, "The log and its system description give the same division",
    "correct the system description, or run again in the division that it gives",
)  # fmt: skip
def division_is_that_of_the_description(case: Case) -> Checked:
    yield from _differs(case.system.get("division"), case.first("submission_division"))


BELONGS = Rule(
    "belongs", Source(SUBMISSION_RULES, "Directory structure, Training"),
    "A result's logs give the same division and benchmark as the package",
    "move the logs to the folder where they belong, or correct the system description", since=OLDEST,
)  # fmt: skip
RULES = (
    benchmark_is_bert, division_is_stated, division_is_the_required_one, division_is_that_of_the_description, BELONGS,
)  # fmt: skip
