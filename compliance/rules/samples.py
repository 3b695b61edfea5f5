"""Count the training samples that a log gives, for the rules about evaluation, convergence and pace."""

import math
from itertools import pairwise
from statistics import median

from compliance import official
from compliance.finding import Case
from compliance.run import Evaluation

TRAINING_STEPS = "opt_learning_rate_training_steps"
# Of the reference's mean; published results take at least 0.90 of it, as means of ten runs.
FEWEST_SAMPLES = 0.6


def target(case: Case) -> float:
    """Return the closed division's target of masked-LM accuracy; round 0.7 had two lower ones, by batch."""
    if case.ruleset != "0.7.0":
        return 0.72
    return 0.712 if (case.batch or 0) < 8192 else 0.706


def reaching(case: Case) -> list[Evaluation]:
    """Return the evaluations that reach the target."""
    aim = target(case)
    return [evaluation for evaluation in case.evaluations if aim <= evaluation.accuracy < 1]


def evaluation_interval(global_batch_size: float) -> int:
    """Return the samples between evaluations of BERT, before rounding up to whole batches (MLPerf Training rules)."""
    return int(0.05 * (230.23 * global_batch_size + 3_000_000) / 25_000) * 25_000


def in_samples(case: Case) -> list[tuple[Evaluation, float]]:
    """Return evaluations with their samples by epoch_num; none if that counts otherwise (320 of 2,480 published logs).

    Evaluations are an interval of samples apart; in steps or epochs they are closer by orders of magnitude.
    """
    batch = case.batch or math.inf
    counted = {at: one for one in case.evaluations if (at := one.samples) is not None and at > 0}
    if max(counted, default=0) < batch:
        return []
    if len(counted) == 1 and len({one.accuracy for one in case.evaluations}) > 1:
        return []  # the same at all evaluations
    gap = min(counted) if len(counted) == 1 else median(b - a for a, b in pairwise(sorted(counted)))
    steps = case.number(TRAINING_STEPS) or (math.inf if case.closed else 0.0)
    if max(counted) <= steps and (not case.closed or gap < evaluation_interval(batch) / 4):
        return []
    return [(counted[at], at) for at in sorted(counted)]


def by_interval(case: Case) -> list[tuple[Evaluation, float]]:
    """Return evaluations with their samples: by epoch_num, or in a closed log as many intervals as the rules ask."""
    counted = in_samples(case)
    if counted or not case.closed or case.batch is None or case.ruleset == "0.7.0":
        return counted
    times = {round(one.time_ms / 1e3): one for one in case.evaluations if math.isfinite(one.time_ms)}
    interval = evaluation_interval(case.batch)
    return [(times[at], float(interval * count)) for count, at in enumerate(sorted(times), 1)]


def reference_samples(ruleset: str, batch: float) -> float | None:
    """Return the reference's mean samples to converge at a batch size, interpolated linearly between its points."""
    points = official.reference_points(ruleset)
    for (low, fewer), (high, more) in pairwise(points):
        if batch <= high:
            return fewer + (more - fewer) * (max(batch, low) - low) / (high - low)
    return points[-1][1] if points else None
