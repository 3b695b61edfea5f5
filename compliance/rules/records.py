"""Rules about lines: each can be read and has one meaning."""

from collections.abc import Callable, Iterable, Iterator

from compliance.finding import Breach, Case, Rule
from compliance.log import MOST_OF_A_KEY
from compliance.rules.clock import COURSE, TRAINED

_PARSER = "mlcommons/logging, mlp_parser"

# Keys that rules look at; a flood of another key is harmless.
_JUDGED = (
    *COURSE, *TRAINED, "init_start", "init_stop", "seed", "global_batch_size", "train_samples", "eval_samples",
    "not_a_result", "resumed",
)  # fmt: skip


def _noted(kind: str) -> Callable[[Case], Iterable[Breach]]:
    """Return the check that reports a log's notes of one kind."""
    return lambda case: (Breach(line, reason) for line, reason in getattr(case.log, kind))


def _nul_records(case: Case) -> Iterator[Breach]:
    for line, is_record in case.log.nul_lines:
        if is_record:
            yield Breach(line, "NUL bytes in the line of a record")


def _nul_lines(case: Case) -> Iterator[Breach]:
    lines = [line for line, is_record in case.log.nul_lines if not is_record]
    if lines:
        yield Breach(lines[0], "NUL bytes, as in a file with a hole")


def _flood(case: Case) -> Iterator[Breach]:
    for key in case.log.flooded:
        if key in _JUDGED:
            last = case.facts.all(key)[-1].line
            yield Breach(last, f"{key} more than {MOST_OF_A_KEY:,} times; our rules saw them up to this line")


RULES = (
    Rule(
        "record", "Every MLPerf line is a JSON object with time_ms, key, value and metadata", _PARSER, "error",
        "check whether the file was truncated, or two processes wrote into one line", _noted("broken"),
    ),
    Rule(
        "time-number", "time_ms is a number", "mlcommons/logging, compliance_checker", "error",
        "write time_ms without quotes", _noted("odd_times"),
    ),
    Rule(
        "record-read", "Every record has its own line, readable for checkers",
        _PARSER, "warning", "let one process write the log, a line at a time", _noted("ignored"),
    ),
    Rule(
        "record-unambiguous", "No record repeats a field", "RFC 8259, section 4", "cannot-judge",
        "write the field once", _noted("ambiguous"),
    ),
    Rule(
        "text", "Records have no NUL bytes", _PARSER, "cannot-judge",
        "copy the log again from where it was written", _nul_records,
    ),
    Rule(
        "text-hole", "Other lines have no NUL bytes", _PARSER, "warning",
        "copy the log again from where it was written", _nul_lines,
    ),
    Rule(
        "flood", "A run logs a key at most 10,000 times", "published logs of rounds 1.1 to 5.0", "warning",
        "log evaluations and blocks, not every step", _flood,
    ),
)  # fmt: skip
