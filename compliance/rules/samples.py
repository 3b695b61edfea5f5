"""Count the training samples that a log gives, for the rules about evaluation, convergence and pace."""

import math
from itertools import pairwise
from statistics import median

from compliance import official
from compliance.finding import Case
from compliance.run import Evaluation, number

TRAINING_STEPS = "opt_learning_rate_training_steps"


def target(case: Case) -> float:
    """Return the closed division's target of masked-LM accuracy; round 0.7 had two lower ones, by batch."""
    if case.ruleset != "0.7.0":
        return 0.72
    batch = number(case.facts.global_batch_size)
    return 0.712 if batch is None or batch < 8192 else 0.706


def reaching(case: Case) -> list[Evaluation]:
    """Return the evaluations that reach the target."""
    aim = target(case)
    return [evaluation for evaluation in case.facts.evaluations if aim <= evaluation.accuracy < 1]


def evaluation_interval(global_batch_size: float) -> int:
    """Return the samples between evaluations of BERT, before rounding up to whole batches (MLPerf Training rules)."""
    return int(0.05 * (230.23 * global_batch_size + 3_000_000) / 25_000) * 25_000


def in_samples(case: Case) -> list[tuple[Evaluation, float]]:
    """Return evaluations with their samples by epoch_num; none if that counts otherwise (320 of 2,480 published logs).

    Evaluations are an interval of samples apart; in steps or epochs they are closer by orders of magnitude.
    """
    batch = number(case.facts.global_batch_size)
    counted = {at: one for one in case.facts.evaluations if (at := one.samples) is not None and at > 0}
    if not counted or batch is None or batch <= 0 or max(counted) < batch:
        return []
    if len(counted) == 1 and len({one.accuracy for one in case.facts.evaluations}) > 1:
        return []  # the same at all evaluations
    gap = min(counted) if len(counted) == 1 else median(b - a for a, b in pairwise(sorted(counted)))
    steps = number(case.facts.value(TRAINING_STEPS))
    as_steps = max(counted) <= (steps or 0.0) if steps or not case.closed else gap < evaluation_interval(batch) / 4
    if as_steps and (not case.closed or gap < evaluation_interval(batch) / 4):
        return []
    return [(counted[at], at) for at in sorted(counted)]


def by_interval(case: Case) -> list[tuple[Evaluation, float]]:
    """Return evaluations with their samples: by epoch_num, or in a closed log as many intervals as the rules ask."""
    counted, batch = in_samples(case), number(case.facts.global_batch_size)
    if counted or not case.closed or batch is None or batch <= 0:
        return counted
    times = {round(one.time_ms / 1e3): one for one in case.facts.evaluations if math.isfinite(one.time_ms)}
    interval = evaluation_interval(batch)
    return [(times[at], float(interval * (index + 1))) for index, at in enumerate(sorted(times))]


def reference_samples(ruleset: str, batch: float) -> float | None:
    """Return the reference's mean samples to converge at a batch size, interpolated linearly between its points."""
    points = official.reference_points(ruleset)
    if not points:
        return None
    if batch <= points[0][0]:
        return points[0][1]
    for (low, fewer), (high, more) in pairwise(points):
        if batch <= high:
            return fewer + (more - fewer) * (batch - low) / (high - low)
    return points[-1][1]
