"""MLCommons' log parser and log checker: every line is a record, and has only one meaning."""

from collections.abc import Iterator
from dataclasses import replace

from compliance.read.case import Case
from compliance.read.log import MOST_OF_A_KEY
from compliance.rules.rule import (
    JSON_STANDARD,
    LOG_CHECKER,
    LOG_PARSER,
    OLDEST,
    Checked,
    Fault,
    Gap,
    Rule,
    Source,
    rule,
)

_LINES = Source(LOG_PARSER, "parse_file")
_CHECKS = Source(LOG_CHECKER, "common.yaml")
_COUNTED_KEYS = (
    "run_start", "run_stop", "init_start", "init_stop", "block_start", "epoch_start", "eval_start", "eval_accuracy",
    "global_batch_size", "seed", "train_samples", "eval_samples", "not_a_result", "resumed",
)  # fmt: skip
"""Keys that rules look at; however often another key occurs, it hides nothing from them."""

READABLE = Rule(
    "readable", _LINES, "A log is plain text with MLPerf lines, within the judge's limits",
    "give the original log, as the run wrote it", since=OLDEST, doubtful=True,
)  # fmt: skip
OFFICIAL = Rule(
    "official", _CHECKS, "The log passes the official log checker",
    "log the key as the ruleset's files in mlperf-logging require", since=OLDEST,
)  # fmt: skip
OFFICIAL_END = replace(
    OFFICIAL, remedy="take the complete log; this one is cut off, or its run was killed or is still going"
)
"""The same rule, for a log without run_stop."""


def _noted(case: Case, name: str) -> Iterator[Fault]:
    return (Fault(line, reason) for line, reason in case.log.notes[name])


def _more_lines(count: int) -> str:
    return f" ({count:,} such lines)" if count > 1 else ""


@rule(
    "record", _LINES, "Every MLPerf line is a JSON object with time_ms, key, value and metadata",
    "check whether the file was truncated, or whether two processes wrote to one line", since=OLDEST,
)  # fmt: skip
def lines_are_records(case: Case) -> Checked:
    yield from _noted(case, "record")


@rule(
    "time-number", Source(LOG_PARSER, "string_to_logline"),
    "time_ms is a finite number, or a short text that Python's float() converts to one",
    "write time_ms as a number, without quotes", since=OLDEST,
)  # fmt: skip
def times_are_numbers(case: Case) -> Checked:
    """Find values that are no time; the parser's float() accepts some, such as true. Note numbers written as text."""
    yield from _noted(case, "time-number")
    notes = case.log.notes["time-text"]
    for line, reason in notes[:1]:
        more = _more_lines(len(notes))
        yield Gap(f"line {line}: {reason} isn't a number, but is read as one{more}", asked=False)


@rule(
    "record-unambiguous", Source(JSON_STANDARD, "4. Objects"), "No record repeats a field",
    "write each field of a record once", since=OLDEST, doubtful=True,
)  # fmt: skip
def records_have_one_meaning(case: Case) -> Checked:
    yield from _noted(case, "record-unambiguous")


@rule(
    "text", _LINES, "Records contain no NUL bytes", "copy the log again from the machine that wrote it",
    since=OLDEST, doubtful=True,
)  # fmt: skip
def records_are_text(case: Case) -> Checked:
    yield from _noted(case, "text")


@rule(
    "record-read", _LINES, "The parser reads every line of the log",
    "let a single process write the log, one line at a time", since=OLDEST,
)  # fmt: skip
def all_lines_are_read(case: Case) -> Checked:
    for name in ("record-read", "text-hole"):
        notes = case.log.notes[name]
        for line, reason in notes[:1]:
            yield Gap(f"line {line}: {reason}{_more_lines(len(notes))}")
    for key in case.log.flooded:
        if key in _COUNTED_KEYS:
            yield Gap(f"{key} occurs more than {MOST_OF_A_KEY:,} times; the judge checked only the first ones")


RULES = (
    READABLE, OFFICIAL, lines_are_records, times_are_numbers, records_have_one_meaning, records_are_text,
    all_lines_are_read,
)  # fmt: skip
