"""List our rules: they find what the official checker misses, or reports without a line or a remedy."""

from compliance.finding import Rule
from compliance.rules import (
    blocks,
    clock,
    convergence,
    division,
    evaluation,
    hyperparameters,
    pace,
    quantities,
    records,
    submission,
)

# Their verdicts come from elsewhere; they stand here so that every finding's rule is listed.
READABLE = Rule(
    "readable",
    "A log is plain text with MLPerf lines, within the limits",
    "mlcommons/logging, mlp_parser",
    "cannot-judge",
    "give the log as the run wrote it",
)
OFFICIAL = Rule(
    "official",
    "The official checker passes the log",
    "mlcommons/logging, compliance_checker",
    "error",
    "see the key in the ruleset's files of mlperf-logging; log what it asks for",
)
RULES: tuple[Rule, ...] = (
    READABLE,
    OFFICIAL,
    *records.RULES,
    *submission.RULES,
    *clock.RULES,
    *blocks.RULES,
    *pace.RULES,
    *hyperparameters.RULES,
    *division.RULES,
    *evaluation.RULES,
    *convergence.RULES,
    *quantities.RULES,
)
