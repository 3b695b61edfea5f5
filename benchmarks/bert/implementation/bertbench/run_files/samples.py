"""Count the training samples of a log's evaluations: by epoch_num, or else by what the log counts instead.

MLPerf's rules ask for samples in epoch_num since round 2.1. Many logs of earlier rounds have 1 at every evaluation, or
count steps; some of these log the samples under another key.
"""

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from bertbench.common.mlperf import mlperf_evaluation_interval
from compliance.read.run import Evaluation, RunFacts, number

EPOCH_NUM = "epoch_num"
_METADATA = ("samples_count", "train_samples_since_beginning")
_LATE = 0.6  # accuracy: a run whose first evaluation is above it didn't evaluate from its start
_NEAR = 0.5, 3.0  # times MLPerf's interval between evaluations, which was longer in round 0.7
Counts = list[Evaluation]


class SampleCounts(NamedTuple):
    """Evaluations with their training samples, in the log's order; none if the log doesn't give them."""

    evaluations: Counts
    source: str | None
    """What the samples were counted by; EPOCH_NUM if the log follows MLPerf's rules."""

    @property
    def total(self) -> float | None:
        """Return the samples at the last evaluation: a successful run's samples to converge."""
        return self.evaluations[-1].samples if self.evaluations else None


def sample_counts(facts: RunFacts) -> SampleCounts:
    """Return the evaluations of a log with their training samples."""
    for source, count in _SOURCES.items():
        if evaluations := count(facts):
            return SampleCounts(evaluations, source)
    return SampleCounts([], None)


def samples_to_end(facts: RunFacts) -> float | None:
    """Return the training samples at a run's last evaluation."""
    return sample_counts(facts).total


def samples_per_s(facts: RunFacts) -> float | None:
    """Return the training samples per second of the whole timed run."""
    samples, seconds = samples_to_end(facts), facts.time_to_train_s
    return samples / seconds if samples and seconds else None


def _by_epoch_num(facts: RunFacts) -> Counts:
    counts = _distinct_counts(facts)
    if not counts or counts[-1] < (_batch(facts) or 0.0):
        return []
    if len(counts) == 1 and len({one.accuracy for one in facts.evaluations}) > 1:
        return []  # the same at every evaluation
    if _counts_steps(facts, counts):
        return []
    return [one for one in facts.evaluations if one.samples is not None]


def _counts_steps(facts: RunFacts, counts: list[float]) -> bool:
    """Return whether counts are of steps: in a closed run they are far closer than its evaluations' samples.

    An open run chooses its own interval; there train_samples tells.
    """
    if facts.division == "closed":
        return counts[-1] <= (_training_steps(facts) or 0.0) and _typical_gap(counts) < _interval(facts) / 4
    batch, trained = _batch(facts), _trained(facts)
    return batch is not None and batch > 2 and trained is not None and trained > counts[-1] * batch / 2


def _by_metadata(facts: RunFacts) -> Counts:
    """Count by the samples that eval_accuracy has in another field of its metadata."""
    metadata = {event.line: event.metadata for event in facts.all("eval_accuracy")}
    for field in _METADATA:
        counts = [one._replace(samples=number(metadata[one.line].get(field))) for one in facts.evaluations]
        if counts and all(one.samples is not None for one in counts):
            return counts
    return []


def _by_steps(facts: RunFacts) -> Counts:
    """Count by an epoch_num that is a number of steps."""
    counts, batch, steps = _distinct_counts(facts), _batch(facts), _training_steps(facts)
    if batch is None or steps is None or len(counts) < len(facts.evaluations) or not counts:
        return []
    least, most = (times * _interval(facts) for times in _NEAR)
    if counts[-1] > steps or not (len(counts) > 1 and least <= _typical_gap(counts) * batch <= most):
        return []
    return [one._replace(samples=(one.samples or 0.0) * batch) for one in facts.evaluations]


def _by_train_samples(facts: RunFacts) -> Counts:
    """Count by the samples logged after the last evaluation, with the evaluations evenly apart."""
    total = _trained(facts)
    if total is None or total < (_batch(facts) or 1.0):
        return []
    every = total / len(facts.evaluations)
    return [one._replace(samples=every * count) for count, one in enumerate(facts.evaluations, start=1)]


def _by_blocks(facts: RunFacts) -> Counts:
    """Count by the steps of the blocks before each evaluation."""
    batch, steps = _batch(facts), _training_steps(facts)
    blocks = [(event.line, number(event.metadata.get("epoch_count")) or 0.0) for event in facts.all("block_start")]
    trained = [sum(count for line, count in blocks if line < one.line) for one in facts.evaluations]
    if batch is None or steps is None or not trained or not len(blocks) < trained[-1] <= steps:
        return []  # one each: they count evaluations or epochs
    pairs = zip(facts.evaluations, trained, strict=True)
    return [one._replace(samples=count * batch) for one, count in pairs]


def _by_evaluations(facts: RunFacts) -> Counts:
    """Estimate from the number of a closed run's evaluations, as far apart as MLPerf's rules ask."""
    if facts.division != "closed" or len(facts.evaluations) < 2 or facts.evaluations[0].accuracy > _LATE:
        return []
    every = _interval(facts)
    return [one._replace(samples=every * count) for count, one in enumerate(facts.evaluations, start=1) if every]


_SOURCES: dict[str, Callable[[RunFacts], Counts]] = {
    EPOCH_NUM: _by_epoch_num,
    "the samples in other metadata of eval_accuracy": _by_metadata,
    "epoch_num in steps": _by_steps,
    "train_samples": _by_train_samples,
    "the steps of its blocks": _by_blocks,
    "the number of its evaluations, an estimate": _by_evaluations,
}
"""Ways to count, the most certain first."""


def _trained(facts: RunFacts) -> float | None:
    """Return the samples logged after the last evaluation; before it, some log the samples that they plan."""
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
    """Return the samples between evaluations by MLPerf's rules; 0 if the batch is unknown."""
    batch = _batch(facts)
    return float(mlperf_evaluation_interval(round(batch))) if batch else 0.0


def _distinct_counts(facts: RunFacts) -> list[float]:
    return sorted({one.samples for one in facts.evaluations if one.samples})


def _typical_gap(counts: list[float]) -> float:
    return median(after - before for before, after in pairwise(counts)) if len(counts) > 1 else counts[0]
