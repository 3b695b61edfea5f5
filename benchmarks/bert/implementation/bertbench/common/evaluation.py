"""Compute how often MLPerf evaluates BERT, and format an accuracy."""

import math

_DIGITS = 4
_MOST_DIGITS = 17  # a double has no more


def mlperf_evaluation_interval(global_batch_size: int) -> int:
    """Return the training samples between evaluations: floor(0.05 * (230.23 * GBS + 3,000,000) / 25,000) * 25,000.

    GBS is the global batch size. Source: MLPerf Training rules, BERT, evaluation frequency.
    """
    return math.floor(0.05 * (230.23 * global_batch_size + 3_000_000) / 25_000) * 25_000


def accuracy_text(accuracy: float, target: float | None) -> str:
    """Return an accuracy with 4 digits, or more if it takes more to show that it is below the target, as in 0.39995."""
    text = f"{accuracy:.{_DIGITS}f}"
    if target is None or accuracy >= target:
        return text
    for digits in range(_DIGITS, _MOST_DIGITS + 1):
        text = f"{accuracy:.{digits}f}"
        if float(text) < target:
            break
    return text
