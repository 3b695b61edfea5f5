"""Count the training samples at a log's evaluations: by epoch_num, or else by whatever the log counts instead.

MLPerf's rules require samples in epoch_num since round 2.1. Many logs of earlier rounds have 1 at every evaluation, or
count steps. Some of these log the samples under another key.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bertbench.common.evaluation import mlperf_evaluation_interval
from compliance.read.run import RunFacts, number

EPOCH_NUM = "epoch_num"
_SAMPLES_FIELDS = ("samples_count", "train_samples_since_beginning")
"""Fields of eval_accuracy's metadata that hold the samples in some logs of earlier rounds."""
_LATE = 0.6  # accuracy; if the first evaluation is above it, the run didn't evaluate from its start
_SHORTEST_INTERVAL = 0.5  # as a multiple of MLPerf's interval between evaluations
_LONGEST_INTERVAL = 3.0  # as such a multiple; the interval was longer in round 0.7
_TOO_CLOSE = 0.25  # as such a multiple; if counts are closer to each other than this, they count steps
Counts = list[float | None]
"""The training samples at each evaluation."""


@dataclass(frozen=True)
class SampleCounts:
    """The training samples at each evaluation of a log."""

    samples: Counts
    source: str | None
    """The way in which samples were counted; EPOCH_NUM if the log follows MLPerf's rules; None if it states none."""

    @property
    def total(self) -> float | None:
        """Return the samples at the last evaluation; for a successful run, these are its samples to converge."""
        return next((count for count in reversed(self.samples) if count is not None), None)


def sample_counts(facts: RunFacts) -> SampleCounts:
    """Return the training samples at each of a log's evaluations, in the log's order."""
    for source, count in _SOURCES.items():
        if samples := count(facts):
            return SampleCounts(samples, source)
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
        training_steps = _training_steps(facts) or 0.0
        return counts[-1] <= training_steps and _typical_gap(counts) < _TOO_CLOSE * _interval(facts)
    batch = _batch(facts)
    trained = _trained(facts)
    if batch is None or batch <= 2 or trained is None:
        return False
    return trained > counts[-1] * batch / 2


def _by_metadata(facts: RunFacts) -> Counts:
    """Count by samples in another field of eval_accuracy's metadata."""
    metadata = {event.line: event.metadata for event in facts.all("eval_accuracy")}
    for field in _SAMPLES_FIELDS:
        samples = [number(metadata[evaluation.line].get(field)) for evaluation in facts.evaluations]
        if None not in samples:
            return samples
    return []


def _by_steps(facts: RunFacts) -> Counts:
    """Count by an epoch_num that holds a number of steps."""
    steps = _distinct_counts(facts)
    batch = _batch(facts)
    training_steps = _training_steps(facts)
    if batch is None or training_steps is None or len(steps) < 2:
        return []
    every_evaluation_has_its_own = len(steps) == len(facts.evaluations)
    if not every_evaluation_has_its_own or steps[-1] > training_steps:
        return []
    interval = _interval(facts)
    gap = _typical_gap(steps) * batch
    if not _SHORTEST_INTERVAL * interval <= gap <= _LONGEST_INTERVAL * interval:
        return []
    logged_steps = [evaluation.samples or 0.0 for evaluation in facts.evaluations]
    return [count * batch for count in logged_steps]


def _by_train_samples(facts: RunFacts) -> Counts:
    """Count by the samples logged after the last evaluation, as if evaluations were evenly spaced."""
    total = _trained(facts)
    least = _batch(facts) or 1.0
    if total is None or total < least:
        return []
    return _evenly_apart(facts, total / len(facts.evaluations))


def _by_blocks(facts: RunFacts) -> Counts:
    """Count by the steps of the blocks before each evaluation."""
    batch = _batch(facts)
    training_steps = _training_steps(facts)
    if batch is None or training_steps is None or not facts.evaluations:
        return []
    blocks = [(event.line, number(event.metadata.get("epoch_count")) or 0.0) for event in facts.all("block_start")]
    steps = []
    for evaluation in facts.evaluations:
        steps.append(sum(block_steps for line, block_steps in blocks if line < evaluation.line))
    if steps[-1] <= len(blocks):
        return []  # each block counts 1, so the blocks count evaluations or epochs
    if steps[-1] > training_steps:
        return []
    return [count * batch for count in steps]


def _by_evaluations(facts: RunFacts) -> Counts:
    """Estimate from the number of a closed run's evaluations, with the spacing that MLPerf's rules require."""
    if facts.division != "closed" or len(facts.evaluations) < 2 or facts.evaluations[0].accuracy > _LATE:
        return []
    interval = _interval(facts)
    return _evenly_apart(facts, interval) if interval else []


_SOURCES: dict[str, Callable[[RunFacts], Counts]] = {
    EPOCH_NUM: _by_epoch_num,
    "the samples in other metadata of eval_accuracy": _by_metadata,
    "epoch_num in steps": _by_steps,
    "train_samples": _by_train_samples,
    "the steps of its blocks": _by_blocks,
    "the number of its evaluations, an estimate": _by_evaluations,
}
"""The ways to count, the most reliable first."""


def _trained(facts: RunFacts) -> float | None:
    """Return the samples logged after the last evaluation. Some logs state planned samples before it."""
    if not facts.evaluations:
        return None
    last = facts.evaluations[-1].line
    return next((number(event.value) for event in facts.all("train_samples") if event.line > last), None)


def _batch(facts: RunFacts) -> float | None:
    batch = number(facts.global_batch_size)
    return batch if batch and batch > 0 else None


def _training_steps(facts: RunFacts) -> float | None:
    return number(facts.value("opt_learning_rate_training_steps"))


def _interval(facts: RunFacts) -> float:
    """Return the samples between evaluations according to MLPerf's rules; 0 if the batch is unknown."""
    batch = _batch(facts)
    return float(mlperf_evaluation_interval(round(batch))) if batch else 0.0


def _evenly_apart(facts: RunFacts, interval: float) -> Counts:
    """Return counts with an equal number of samples between them."""
    return [interval * count for count in range(1, len(facts.evaluations) + 1)]


def _distinct_counts(facts: RunFacts) -> list[float]:
    return sorted({evaluation.samples for evaluation in facts.evaluations if evaluation.samples})


def _typical_gap(counts: list[float]) -> float:
    """Return the median distance between counts; for a single count, its distance from 0."""
    if len(counts) == 1:
        return counts[0]
    return median(after - before for before, after in pairwise(counts))
