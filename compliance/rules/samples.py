"""Count the training samples that a log gives, for the rules about evaluation, convergence and pace."""

from itertools import pairwise
from statistics import median

from compliance import official
from compliance.finding import Case
from compliance.run import Evaluation, number


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
    """Return evaluations with their samples; none if epoch_num counts otherwise, as in 320 of 2,480 published logs."""
    batch, steps = number(case.facts.global_batch_size), number(case.facts.value("opt_learning_rate_training_steps"))
    counted = {at: one for one in case.facts.evaluations if (at := one.samples) is not None and at > 0}
    if not counted or batch is None or batch <= 0 or max(counted) < batch:
        return []
    if len(counted) == 1 and len({one.accuracy for one in case.facts.evaluations}) > 1:
        return []  # the same at all evaluations
    gap = min(counted) if len(counted) == 1 else median(b - a for a, b in pairwise(sorted(counted)))
    as_steps = steps is not None and steps > 0 and max(counted) <= steps
    if as_steps or (not steps and gap < evaluation_interval(batch) / 4):
        return []
    return [(counted[at], at) for at in sorted(counted)]


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
