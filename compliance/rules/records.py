"""Rules about lines: each can be read and has one meaning."""

from compliance.finding import Breach, Breaches, Case, Check, Rule
from compliance.log import MOST_OF_A_KEY
from compliance.rules.clock import COURSE
from compliance.rules.quantities import kind_of

_PARSER = "mlcommons/logging, mlp_parser"

# Keys that rules look at, beside measurements; a flood of another key is harmless.
_JUDGED = (
    *COURSE, "init_start", "init_stop", "seed", "global_batch_size", "train_samples", "eval_samples", "not_a_result",
    "resumed",
)  # fmt: skip


def _noted(rule: str) -> Check:
    """Return the check that reports a log's notes for a rule."""
    return lambda case: (Breach(line, reason) for line, reason in case.log.notes[rule])


def _flood(case: Case) -> Breaches:
    for key in case.log.flooded:
        if key in _JUDGED or kind_of(key):
            last = case.all(key)[-1].line
            yield Breach(last, f"{key} more than {MOST_OF_A_KEY:,} times; our rules saw them up to this line")


_NOTED = (
    Rule(
        "record", "Every MLPerf line is a JSON object with time_ms, key, value and metadata", _PARSER, "error",
        "check whether the file was truncated, or two processes wrote into one line",
    ),
    Rule(
        "time-number", "time_ms is a number", "mlcommons/logging, compliance_checker", "error",
        "write time_ms without quotes",
    ),
    Rule(
        "record-read", "Every record has its own line, readable for checkers",
        _PARSER, "warning", "let one process write the log, a line at a time",
    ),
    Rule(
        "record-unambiguous", "No record repeats a field", "RFC 8259, section 4", "cannot-judge",
        "write the field once",
    ),
    Rule(
        "text", "Records have no NUL bytes", _PARSER, "cannot-judge",
        "copy the log again from where it was written",
    ),
    Rule(
        "text-hole", "Other lines have no NUL bytes", _PARSER, "warning",
        "copy the log again from where it was written",
    ),
)  # fmt: skip
RULES = (
    *(rule._replace(check=_noted(rule.id)) for rule in _NOTED),
    Rule(
        "flood", "A run logs a key at most 10,000 times", "published logs of rounds 1.1 to 5.0", "warning",
        "log evaluations and blocks, not every step", _flood,
    ),
)  # fmt: skip
