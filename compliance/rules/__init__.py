"""Our rules as data: what the official checker lets pass, and what it says without a line or a remedy."""

from compliance.finding import Rule
from compliance.rules import (
    blocks,
    clock,
    convergence,
    division,
    evaluation,
    hyperparameters,
    pace,
    records,
    submission,
)

# Rules whose verdict comes from elsewhere, so that all findings have one place to look their rule up.
READABLE = Rule(
    "readable",
    "A log is a plain text file with MLPerf lines, of bounded size and nesting",
    "training_rules.adoc, section on results; mlcommons/logging, mlp_parser",
    "cannot-judge",
    "give the log as the run wrote it",
)
OFFICIAL = Rule(
    "official",
    "The official checker passes the log under the ruleset",
    "mlcommons/logging, compliance_checker",
    "error",
    "see the key in the ruleset's files of mlperf-logging; log what it asks for",
)
RULESET = Rule(
    "ruleset",
    "A log is judged by the rules of its own round",
    "mlcommons/logging, compliance_checker",
    "error",
    "judge it with --ruleset and one of those",
)

RULES: tuple[Rule, ...] = (
    READABLE,
    OFFICIAL,
    RULESET,
    *records.RULES,
    *submission.RULES,
    *clock.RULES,
    *blocks.RULES,
    *pace.RULES,
    *hyperparameters.RULES,
    *division.RULES,
    *evaluation.RULES,
    *convergence.RULES,
)
