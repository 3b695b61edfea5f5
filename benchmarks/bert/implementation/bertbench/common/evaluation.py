"""Say how often MLPerf evaluates BERT, and how an accuracy is shown."""

import math

_DIGITS = 4
_MOST_DIGITS = 17  # a double has no more


def mlperf_evaluation_interval(global_batch_size: int) -> int:
    """Return the samples between evaluations: floor(0.05 * (230.23 * GBS + 3,000,000) / 25,000) * 25,000.

    Source: MLPerf Training rules, BERT, evaluation frequency.
    """
    return math.floor(0.05 * (230.23 * global_batch_size + 3_000_000) / 25_000) * 25_000


def accuracy_text(accuracy: float, target: float | None) -> str:
    """Return an accuracy with 4 digits, or as many as show that it is below the target: 0.39995, not 0.4000."""
    text = f"{accuracy:.{_DIGITS}f}"
    if target is None or accuracy >= target:
        return text
    for digits in range(_DIGITS, _MOST_DIGITS + 1):
        text = f"{accuracy:.{digits}f}"
        if float(text) < target:
            break
    return text
