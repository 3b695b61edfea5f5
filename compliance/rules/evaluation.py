"""Rules about evaluation: its accuracy, its time, its interval and its number of samples."""

from collections.abc import Iterator
from itertools import pairwise

from compliance.finding import Breach, Case, Rule
from compliance.record import shown
from compliance.rules.clock import SKEW_MS, allowance_ms
from compliance.rules.samples import evaluation_interval, in_samples, reaching, target
from compliance.run import Evaluation, number

_QUALITY = "training_rules.adoc: table of benchmarks"
_FREQUENCY = "training_rules.adoc: evaluation frequency"
_RCP = "mlcommons/logging, rcp_checker"
_TRAINING_STEPS = "opt_learning_rate_training_steps"
_HELD_OUT = 10_000
_DATASET = 100_000_000  # some submitters log the size of the dataset, 156,725,653 samples
_NOMINAL = 500  # samples; some submitters log the nominal k x interval, a multiple of it, not the next whole batch


def _accuracy(case: Case) -> Iterator[Breach]:
    for event in case.facts.all("eval_accuracy"):
        value = number(event.value)
        if value is None:
            yield Breach(event.line, f"eval_accuracy {shown(event.value)}")
        elif not 0 <= value < 1:
            yield Breach(event.line, f"eval_accuracy {shown(event.value)}", None, "error" if case.closed else "warning")


def _target(case: Case) -> Iterator[Breach]:
    aim, best = target(case), case.facts.best
    if not case.closed or best is None or reaching(case):
        return
    where = "" if best.samples is None else f" after {best.samples:,.0f} samples"
    yield Breach(
        best.line, f"best accuracy {best.accuracy:.5f}{where}, {aim - best.accuracy:.5f} short", f"accuracy {aim}"
    )


def _target_on_clock(case: Case) -> Iterator[Breach]:
    start, stop, reached = case.facts.first("run_start"), case.facts.first("run_stop"), reaching(case)
    if not case.closed or start is None or stop is None or not reached:
        return
    allowed = allowance_ms(case)
    early, late = start.time_ms - allowed, stop.time_ms + allowed
    by_line = [evaluation for evaluation in reached if not start.line < evaluation.line < stop.line]
    by_time = [evaluation for evaluation in reached if not early <= evaluation.time_ms <= late]
    if len(by_line) < len(reached) and len(by_time) < len(reached):
        return
    strict = [one for one in by_line if not start.time_ms <= one.time_ms <= stop.time_ms]
    certain = len(strict) == len(reached) or len(by_time) == len(reached)
    found = f"accuracy {reached[0].accuracy:.5f} only outside of run_start on line {start.line} to run_stop on line"
    yield Breach(reached[0].line, f"{found} {stop.line}", None, "error" if certain else "warning")


def _epoch_num(case: Case) -> Iterator[Breach]:
    for event in case.facts.all("eval_accuracy"):
        if "epoch_num" not in event.metadata:
            continue  # the official checker reports it
        value = number(event.metadata["epoch_num"])
        if value is None or value < 0:
            yield Breach(event.line, f"epoch_num {shown(event.metadata['epoch_num'])}")


def _epoch_num_grows(case: Case) -> Iterator[Breach]:
    counted = [(one, one.samples) for one in case.facts.evaluations if one.samples is not None]
    if len(counted) > 1 and len({one.accuracy for one, _ in counted}) > 1 and len({at for _, at in counted}) == 1:
        # 79 published logs have 1 everywhere: the samples can't be seen, but nothing is wrong with the run
        found = f"epoch_num {counted[0][1]:,.0f} at all {len(counted)} evaluations"
        yield Breach(counted[1][0].line, found, None, "warning")
        return
    for (before, done), (after, at) in pairwise(counted):
        if at < done and after.time_ms >= before.time_ms:
            yield Breach(after.line, f"epoch_num {at:,.0f} after {done:,.0f} on line {before.line}")
        elif at > done and after.time_ms < before.time_ms - SKEW_MS:
            found = f"epoch_num {at:,.0f} measured before {done:,.0f}, which is on line {before.line}"
            yield Breach(after.line, found, None, "warning")
        elif at == done and after.accuracy != before.accuracy:
            found = f"epoch_num {at:,.0f} again, with another accuracy than on line {before.line}"
            yield Breach(after.line, found, None, "warning")


def _cadence(case: Case) -> Iterator[Breach]:
    batch, evaluations = number(case.facts.global_batch_size), in_samples(case)
    if not case.closed or case.ruleset == "0.7.0" or batch is None or not evaluations:
        return
    interval = evaluation_interval(batch)
    # Submitters round to whole batches up or down, per evaluation or once; packed batches vary in size by some percent.
    tolerance = batch + 0.01 * interval
    done, expected, breaches = 0.0, f"every {interval:,} samples at batch {batch:,.0f}", []
    for index, (evaluation, at) in enumerate(evaluations):
        short = interval - (at - done)
        last = index == len(evaluations) - 1  # training may end before the interval does
        if short < -tolerance or (short > tolerance and not last):
            breaches.append((evaluation.line, f"an evaluation after {at - done:,.0f} more samples"))
        done = at
    # Some implementations evaluate late for the first time and then keep the interval, which saves an evaluation.
    begins_late = len(evaluations) > 1 and [line for line, _ in breaches] == [evaluations[0][0].line]
    begins_late = begins_late and evaluations[0][1] > interval
    for line, found in breaches:
        yield Breach(line, found, expected, "info" if begins_late else None)


def _eval_samples(case: Case) -> Iterator[Breach]:
    for event in case.facts.all("eval_samples"):
        value = number(event.value[0] if isinstance(event.value, list) and len(event.value) == 1 else event.value)
        if case.closed and value != _HELD_OUT:
            yield Breach(event.line, f"eval_samples {shown(event.value)}")
        elif value is None or value <= 0:
            yield Breach(event.line, f"eval_samples {shown(event.value)}", "a positive number", "warning")


def _train_samples(case: Case) -> Iterator[Breach]:
    for event in case.facts.all("train_samples"):
        values = event.value if isinstance(event.value, list) and event.value else [event.value]
        if any((value := number(one)) is None or value <= 0 for one in values):
            yield Breach(event.line, f"train_samples {shown(event.value)}", "a positive number")


def _samples(case: Case) -> Iterator[Breach]:
    evaluations, batch = in_samples(case), number(case.facts.global_batch_size)
    if not evaluations or not batch:
        return
    # An open run of bertbench may train beyond the horizon of its decay.
    last = evaluations[-1]
    most = number(case.facts.value("bertbench_max_steps")) or number(case.facts.value(_TRAINING_STEPS))
    if most and last[1] > 1.02 * most * batch:
        yield Breach(last[0].line, f"{last[1]:,.0f} samples", f"at most {most:,.0f} steps x batch {batch:,.0f}")
    yield from _odd_batches(case, evaluations, batch)
    yield from _trained(case, evaluations, batch, most)


def _odd_batches(case: Case, evaluations: list[tuple[Evaluation, float]], batch: float) -> Iterator[Breach]:
    # Samples grow by the batch, or by its part between two gradient accumulations.
    parts = number(case.facts.value("gradient_accumulation_steps"))
    least = batch / parts if parts is not None and parts >= 1 and batch % parts == 0 else batch
    odd = [(one, at) for one, at in evaluations if at % least]
    gaps = {b - a for a, b in pairwise([0.0, *(at for _, at in evaluations)])}
    if len(odd) == len(evaluations) and len(gaps) > 1:
        return  # packed batches hold varying numbers of samples
    if all(at % _NOMINAL == 0 for _, at in evaluations):
        return
    if 2 * len(odd) <= len(evaluations) or len(gaps) == 1:
        for one, at in odd:
            yield Breach(one.line, f"{at:,.0f} samples, no multiple of the batch", f"a multiple of {least:,.0f}")


def _trained(
    case: Case, evaluations: list[tuple[Evaluation, float]], batch: float, most: float | None
) -> Iterator[Breach]:
    event = case.facts.first("train_samples")
    trained = number(event.value) if event else None
    if event is None or trained is None or trained <= 0 or trained >= _DATASET:
        return
    last = evaluations[-1][1]
    gap = max(b - a for a, b in pairwise([0.0, *(at for _, at in evaluations)]))
    planned = most is not None and abs(trained - most * batch) <= 0.01 * trained
    if trained < 0.99 * last or (last + 2 * gap < trained <= 4 * last and not planned):
        found = f"train_samples {trained:,.0f}, last evaluation after {last:,.0f}"
        yield Breach(event.line, found, "the samples trained on")


RULES = (
    Rule(
        "accuracy", "An accuracy is a number from 0 to below 1", _QUALITY, "error",
        "log the share of masked tokens that were predicted", _accuracy,
    ),
    Rule(
        "target", "A closed run reaches accuracy 0.720 (round 0.7: 0.712, from batch 8,192 0.706)",
        _QUALITY, "error", "train on, or submit it as the one run that did not converge", _target,
    ),
    Rule(
        "target-on-clock", "The target is reached between run_start and run_stop", _QUALITY, "error",
        "stop the clock after the evaluation that reaches the target", _target_on_clock,
    ),
    Rule(
        "epoch-num", "An accuracy's epoch_num is a number of at least 0", _RCP, "error",
        "log the training samples seen so far as epoch_num", _epoch_num,
    ),
    Rule(
        "epoch-num-grows", "epoch_num grows from evaluation to evaluation (all the same: warning)",
        _RCP, "error", "log the training samples seen so far as epoch_num", _epoch_num_grows,
    ),
    Rule(
        "cadence", "A closed run evaluates every floor(0.05 (230.23 batch + 3,000,000) / 25,000) x 25,000 samples",
        _FREQUENCY, "warning", "set the evaluation interval by the formula", _cadence,
    ),
    Rule(
        "eval-samples", "A closed run evaluates on 10,000 samples", _QUALITY, "error",
        "evaluate on the whole evaluation set", _eval_samples,
    ),
    Rule(
        "train-samples", "train_samples is a positive number", "mlcommons/logging, rcp_checker", "warning",
        "log the samples trained on", _train_samples,
    ),
    Rule(
        "samples", "Samples agree with steps x batch and with train_samples", _RCP, "warning",
        "check what is counted as samples, and the batch that is logged", _samples,
    ),
)  # fmt: skip
