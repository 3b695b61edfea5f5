"""training_rules.adoc, "Closed Division" and "Quality measure": the target, and how it is measured."""

from typing import Any, NamedTuple

from compliance.read.case import TRAINING_STEPS, Case
from compliance.read.run import LoggedEvaluation, alone, numeric
from compliance.rules.rule import LOG_CHECKER, OLDEST, TRAINING_RULES, Checked, Fault, Gap, Rule, Source, rule, unsound
from compliance.rules.run_results import allowance_ms

_TARGETS = Source(TRAINING_RULES, "Closed Division")
_QUALITY = Source(TRAINING_RULES, "Quality measure")
_HELD_OUT = 10_000
_PACKED = 0.01
"""Packed batches hold a little more or fewer samples than the nominal number."""


class _Interval(NamedTuple):
    """The training samples between an evaluation and the one before it, and `until` it from the start."""

    evaluation: LoggedEvaluation
    samples: float
    until: float


def target(case: Case) -> float:
    """Return the closed division's target; the log checker of round 0.7 has two lower ones, by batch size."""
    if case.ruleset >= "1.0.0":
        return 0.72
    batch = case.batch or 0
    return 0.712 if batch < 8192 else 0.706


def evaluation_interval(global_batch_size: float) -> int:
    """Return the samples between BERT's evaluations, before rounding up to whole batches."""
    return int(0.05 * (230.23 * global_batch_size + 3_000_000) / 25_000) * 25_000


def _below_1(case: Case) -> list[LoggedEvaluation]:
    return [evaluation for evaluation in case.evaluations if evaluation.accuracy < 1]


def _reaching(case: Case) -> list[LoggedEvaluation]:
    aim = target(case)
    return [evaluation for evaluation in _below_1(case) if evaluation.accuracy >= aim]


@rule(
    "accuracy", Source(LOG_CHECKER, "closed_bert.yaml, open_bert.yaml, eval_accuracy"),
    "Accuracies are numbers, so that the checker can compare them, and at least one is below 1",
    "log the share of masked tokens that were predicted correctly", since=OLDEST,
)  # fmt: skip
def accuracies_are_shares(case: Case) -> Checked:
    yield from unsound(case, "eval_accuracy", lambda value: isinstance(value, int | float))
    if case.evaluations and not _below_1(case):
        lowest = min(case.evaluations, key=lambda evaluation: evaluation.accuracy)
        yield Fault(lowest.line, f"eval_accuracy {lowest.accuracy:g}, the lowest", "an accuracy below 1")


@rule(
    "target", _TARGETS,
    "A closed run reaches accuracy 0.720 (round 0.7: 0.712, or 0.706 from batch size 8,192 on)",
    "train longer, or submit the run as the one that did not converge", since=OLDEST,
)  # fmt: skip
def target_is_reached(case: Case) -> Checked:
    """Find closed runs below the target. An open run may stop when it chooses ("Quality measure"): a gap at most."""
    aim = target(case) if case.closed else case.number("bertbench_target")
    best = max(_below_1(case), key=lambda evaluation: evaluation.accuracy, default=None)
    if best is None or aim is None or best.accuracy >= aim:
        return
    where = "" if best.samples is None else f" after {best.samples:,.0f} samples"
    miss = f"best accuracy {best.accuracy:.5f}{where}, {aim - best.accuracy:.5f} short"
    if case.closed:
        yield Fault(best.line, f"{miss} of the target", f"accuracy {aim}")
    else:
        reason = f"line {best.line}: {miss} of the log's own target {aim:g}; an open run may stop there"
        yield Gap(reason, asked=False)


@rule(
    "target-on-clock", _QUALITY, "The evaluation that reaches the target is on the clock",
    "stop the clock after the evaluation that reaches the target",
)  # fmt: skip
def target_is_reached_on_the_clock(case: Case) -> Checked:
    """Find runs that reach the target only off the clock: by the time of the evaluations, or by their lines and times.

    An evaluation that is off the clock by its line alone may have been written late. The section has an exception for
    a reference that evaluates timestamped checkpoints off the clock. We don't apply it to BERT: "Appendix: Benchmark
    Specific Rules" lets Stable Diffusion (from 3.1 on) evaluate offline, but not BERT.
    """
    start = case.first("run_start")
    stop = case.first("run_stop")
    reached = _reaching(case)
    if not case.closed or start is None or stop is None or not reached:
        return
    skew_ms = allowance_ms(case)

    def off_by_time(evaluation: LoggedEvaluation, allowed_ms: float) -> bool:
        return not start.time_ms - allowed_ms <= evaluation.time_ms <= stop.time_ms + allowed_ms

    def off_by_line_and_time(evaluation: LoggedEvaluation) -> bool:
        is_between_lines = start.line < evaluation.line < stop.line
        return not is_between_lines and off_by_time(evaluation, 0.0)

    all_off_by_time = all(off_by_time(evaluation, skew_ms) for evaluation in reached)
    if all_off_by_time or all(map(off_by_line_and_time, reached)):
        clock = f"from run_start on line {start.line} to run_stop on line {stop.line}"
        yield Fault(reached[0].line, f"accuracy {reached[0].accuracy:.5f} only off the clock, which runs {clock}")


@rule(
    "cadence", _QUALITY,
    "Closed runs evaluate every floor(0.05 (230.23 batch + 3,000,000) / 25,000) x 25,000 samples, or up to a batch "
    "later",
    "set the evaluation interval by the formula; if lines are missing, give the complete log",
)  # fmt: skip
def evaluations_come_at_the_formulas_interval(case: Case) -> Checked:
    """Compare the intervals, in samples, with the formula's.

    Submitters round each interval, or the interval once, to whole batches. So we allow a batch, and 1 % for packed
    batches. Up to two early evaluations are allowed, because they gain nothing. An early last evaluation does gain time
    if it reaches the target. It is allowed only if it is the run's only evaluation, or if the training steps in the log
    end there. The first evaluation may come one interval late, as some implementations have it.
    """
    intervals = _intervals(case)
    if not case.closed or case.batch is None or not intervals:
        return  # the rule `epoch-num` notes logs that don't count samples
    wanted = evaluation_interval(case.batch)
    tolerance = case.batch + _PACKED * wanted
    long = [interval for interval in intervals if interval.samples > wanted + tolerance]
    short = [interval for interval in intervals if interval.samples < wanted - tolerance]
    if not (long or short):
        return
    left_out = round(sum(interval.samples / wanted - 1 for interval in long))
    allowed_left_out = 1 if intervals[0] in long else 0
    last = intervals[-1]
    last_comes_early = len(intervals) > 1 and last in short
    last_gains = last_comes_early and _last_gains(case, last, case.batch)
    if len(short) <= 2 and left_out <= allowed_left_out and not last_gains:
        return
    first = min([*long, *short], key=lambda interval: interval.evaluation.line)
    yield Fault(
        first.evaluation.line,
        f"an evaluation {first.samples:,.0f} samples after the one before ({len(short)} early and {left_out} missing "
        "in the run)",
        f"an evaluation every {wanted:,} samples at batch size {case.batch:,.0f}",
    )


def _intervals(case: Case) -> list[_Interval]:
    """Return the interval before each evaluation, ordered by samples."""
    intervals = []
    before = 0.0
    for evaluation, samples in case.in_samples():
        intervals.append(_Interval(evaluation, samples - before, samples))
        before = samples
    return intervals


def _last_gains(case: Case, last: _Interval, batch: float) -> bool:
    """Return whether the last evaluation reaches the target before the planned end of the training."""
    steps = case.number(TRAINING_STEPS) or 0.0
    planned = (steps - 1) * batch  # samples
    training_ended = planned > 0 and last.until >= planned
    return last.evaluation in _reaching(case) and not training_ended


@rule(
    "eval-samples", _QUALITY,
    "A closed run evaluates at least as thoroughly as the reference, that is, on 10,000 samples or more",
    "evaluate on the whole evaluation set",
)  # fmt: skip
def evaluation_is_as_thorough_as_the_references(case: Case) -> Checked:
    if case.closed:
        yield from unsound(case, "eval_samples", _is_the_whole_set)


def _is_the_whole_set(value: Any) -> bool:
    samples = numeric(alone(value))
    return samples is not None and samples >= _HELD_OUT


RULES: tuple[Rule, ...] = (
    accuracies_are_shares, target_is_reached, target_is_reached_on_the_clock, evaluations_come_at_the_formulas_interval,
    evaluation_is_as_thorough_as_the_references,
)  # fmt: skip
