"""Count the training samples at a log's evaluations: by epoch_num, or else by train_samples.

MLPerf's rules require samples in epoch_num since round 2.1. Many logs of earlier rounds have 1 at every evaluation, or
count steps. Those that state no train_samples either have no samples here.
"""

from itertools import pairwise
from statistics import median
from typing import NamedTuple

from bertbench.common.evaluation import mlperf_evaluation_interval
from compliance.read.run import RunFacts, number

EPOCH_NUM = "epoch_num"
TRAIN_SAMPLES = "train_samples"
_TOO_CLOSE = 0.25  # as a multiple of MLPerf's interval; if counts are closer to each other than this, they count steps
Counts = list[float | None]
"""The training samples at each evaluation."""


class SampleCounts(NamedTuple):
    """The training samples at each evaluation of a log."""

    samples: Counts
    source: str | None
    """EPOCH_NUM or TRAIN_SAMPLES; None if the log states neither."""


def sample_counts(facts: RunFacts) -> SampleCounts:
    """Return the training samples at each of a log's evaluations, in the log's order."""
    if samples := _by_epoch_num(facts):
        return SampleCounts(samples, EPOCH_NUM)
    if samples := _by_train_samples(facts):
        return SampleCounts(samples, TRAIN_SAMPLES)
    return SampleCounts([None] * len(facts.evaluations), None)


def _by_epoch_num(facts: RunFacts) -> Counts:
    counts = _distinct_counts(facts)
    least = _batch(facts) or 0.0
    if not counts or counts[-1] < least:
        return []
    accuracies = {evaluation.accuracy for evaluation in facts.evaluations}
    if len(counts) == 1 and len(accuracies) > 1:
        return []  # the same number at every evaluation
    if _counts_steps(facts, counts):
        return []
    return [evaluation.samples for evaluation in facts.evaluations]


def _counts_steps(facts: RunFacts, counts: list[float]) -> bool:
    """Return whether counts are steps: in a closed run, they are much closer to each other than samples could be.

    An open run chooses its own interval between evaluations, so its train_samples decides.
    """
    if facts.division == "closed":
        training_steps = number(facts.value("opt_learning_rate_training_steps")) or 0.0
        return counts[-1] <= training_steps and _typical_gap(counts) < _TOO_CLOSE * _interval(facts)
    batch = _batch(facts)
    trained = _trained(facts)
    if batch is None or batch <= 2 or trained is None:
        return False
    return trained > counts[-1] * batch / 2


def _by_train_samples(facts: RunFacts) -> Counts:
    """Count by the samples logged after the last evaluation, as if evaluations were evenly spaced."""
    total = _trained(facts)
    least = _batch(facts) or 1.0
    if total is None or total < least:
        return []
    interval = total / len(facts.evaluations)
    return [interval * count for count in range(1, len(facts.evaluations) + 1)]


def _trained(facts: RunFacts) -> float | None:
    """Return the samples logged after the last evaluation. Some logs state planned samples before it."""
    if not facts.evaluations:
        return None
    last = facts.evaluations[-1].line
    return next((number(event.value) for event in facts.all(TRAIN_SAMPLES) if event.line > last), None)


def _batch(facts: RunFacts) -> float | None:
    batch = number(facts.global_batch_size)
    return batch if batch and batch > 0 else None


def _interval(facts: RunFacts) -> float:
    """Return the samples between evaluations according to MLPerf's rules; 0 if the batch is unknown."""
    batch = _batch(facts)
    return float(mlperf_evaluation_interval(round(batch))) if batch else 0.0


def _distinct_counts(facts: RunFacts) -> list[float]:
    return sorted({evaluation.samples for evaluation in facts.evaluations if evaluation.samples})


def _typical_gap(counts: list[float]) -> float:
    """Return the median distance between counts; for a single count, its distance from 0."""
    if len(counts) == 1:
        return counts[0]
    return median(after - before for before, after in pairwise(counts))
