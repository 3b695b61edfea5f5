"""Rules about convergence: accuracy rises as in training, over as many samples as training takes.

A package's convergence check judges the samples to converge of ten runs; these rules judge the accuracies of one run.
"""

from itertools import pairwise

from compliance.finding import Breach, Breaches, Case, Rule
from compliance.rules.samples import FEWEST_SAMPLES, by_interval, in_samples, reaching, reference_samples, target
from compliance.run import number

_QUALITY = "training_rules.adoc: table of benchmarks"
_RCP = "mlcommons/logging, rcp_checker"
_STEEPER = 2.5e-3  # the rise to the target, than both before it; in 170 published runs 5.6e-4 at most
_LEAST_BEFORE_TARGET = 0.6  # no published closed run leaps from below it to the target, or starts above 0.5
_KEPT = 0.002  # evaluations at the target may differ by this much


def _leap(case: Case) -> Breaches:
    reached, evaluations = reaching(case), case.evaluations
    if not case.closed or not reached or case.ruleset == "0.7.0":  # it evaluated late
        return
    start, first = evaluations[0], reached[0]
    if start.accuracy >= _LEAST_BEFORE_TARGET:
        found = f"accuracy {start.accuracy:.5f} at the first evaluation"
        yield Breach(start.line, found, None, "error" if len(evaluations) > 1 else "warning")
        return
    course = [one.accuracy for one in evaluations[: evaluations.index(first) + 1]]
    *rises, last = (b - a for a, b in pairwise(course[-4:]))
    if course[-2] < _LEAST_BEFORE_TARGET:
        yield Breach(first.line, f"accuracy {first.accuracy:.5f} right after {course[-2]:.5f}")
    elif rises and last > max(_STEEPER + max(rises), 2 * max(rises)):
        found = f"accuracy {first.accuracy:.5f} right after {course[-2]:.5f}, steeper than before"
        yield Breach(first.line, found, None, "warning")


def _early(case: Case) -> Breaches:
    reached, reference = {one.line for one in reaching(case)}, reference_samples(case.ruleset, case.batch or 0.0)
    first = next(((one.line, at) for one, at in by_interval(case) if one.line in reached), None)
    if not case.closed or reference is None or first is None or first[1] >= FEWEST_SAMPLES * reference:
        return
    line, at = first
    expected = f"at least {FEWEST_SAMPLES * reference:,.0f}; the reference takes {reference:,.0f} at this batch size"
    yield Breach(line, f"the target after {at:,.0f} samples", expected, "error" if in_samples(case) else "warning")


def _kept(case: Case) -> Breaches:
    evaluations = case.evaluations
    if not case.closed or not reaching(case) or evaluations[-1].accuracy >= target(case):
        return
    last, first = evaluations[-1], reaching(case)[0]
    found = f"accuracy {last.accuracy:.5f} at the last evaluation, after {first.accuracy:.5f} on line {first.line}"
    yield Breach(last.line, found, None, "error" if target(case) - last.accuracy > _KEPT else "warning")


def _counts(case: Case) -> Breaches:
    starts, ends = case.all("eval_start") or case.all("eval_stop"), case.all("eval_accuracy")
    for start, event in zip(starts, ends if len(ends) == len(starts) else (), strict=False):
        begun, said = (number(one.metadata.get("epoch_num")) or 0.0 for one in (start, event))
        if said != begun and begun < 2 * said < 4 * begun:  # others count something else at the start
            last = event is ends[-1]  # the samples to converge
            found = f"epoch_num {said:,.0f} in an evaluation at {begun:,.0f}"
            yield Breach(event.line, found, None, "error" if last and case.closed else "warning")


RULES = (
    Rule(
        "leap", "A closed run passes accuracy 0.6 before it reaches the target (steeper than before: warning)",
        _QUALITY, "error",
        "submit the log as the run wrote it, with all its evaluations", _leap,
    ),
    Rule(
        "early", "A closed run takes at least 0.6 of the reference's samples to converge", _RCP, "error",
        "log the training samples seen so far as epoch_num", _early,
    ),
    Rule(
        "target-kept", "A closed run still has the target at its last evaluation", _QUALITY, "error",
        "stop at the evaluation that reaches the target", _kept,
    ),
    Rule(
        "evaluation-count", "An accuracy has its evaluation's epoch_num (a closed run's last: error)",
        _RCP, "warning", "log the training samples seen so far at both", _counts,
    ),
)  # fmt: skip
