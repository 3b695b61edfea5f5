"""Rules about evaluation: its accuracy, its time, its interval and its number of samples."""

from itertools import pairwise
from statistics import median

from compliance.finding import Breach, Breaches, Case, Rule, Severity, odd
from compliance.record import shown
from compliance.rules.clock import SKEW_MS, allowance_ms
from compliance.rules.samples import TRAINING_STEPS, evaluation_interval, in_samples, reaching, target
from compliance.run import number

_QUALITY = "training_rules.adoc: table of benchmarks"
_FREQUENCY = "training_rules.adoc: evaluation frequency"
_RCP = "mlcommons/logging, rcp_checker"
_HELD_OUT = 10_000
_FEWEST_EVEN = 6  # intervals for each long one: otherwise an open run chose its own


def _accuracy(case: Case) -> Breaches:
    yield from odd(case, "eval_accuracy", lambda value: number(value) is not None)
    severity: Severity = "error" if case.closed else "warning"
    yield from odd(case, "eval_accuracy", lambda value: 0 <= (number(value) or 0.0) < 1, None, severity)


def _target(case: Case) -> Breaches:
    aim, best = target(case) if case.closed else case.number("bertbench_target") or 0.0, case.best
    if best is None or best.accuracy >= aim or not (case.closed or case.status == "success"):
        return
    where = "" if best.samples is None else f" after {best.samples:,.0f} samples"
    yield Breach(
        best.line, f"best accuracy {best.accuracy:.5f}{where}, {aim - best.accuracy:.5f} short", f"accuracy {aim}"
    )


def _target_on_clock(case: Case) -> Breaches:
    start, stop, reached = case.first("run_start"), case.first("run_stop"), reaching(case)
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


def _epoch_num_grows(case: Case) -> Breaches:
    for event in case.all("eval_accuracy"):  # the official checker reports those without any
        count = event.metadata.get("epoch_num", 0)
        if (value := number(count)) is None or value < 0:
            yield Breach(event.line, f"epoch_num {shown(count)}")
    counted = [(one, one.samples) for one in case.evaluations if one.samples is not None]
    if len(counted) > 1 and len({one.accuracy for one, _ in counted}) > 1 and len({at for _, at in counted}) == 1:
        # 79 published logs have 1 everywhere: the samples can't be seen, but nothing is wrong with the run
        found = f"epoch_num {counted[0][1]:,.0f} at all {len(counted)} evaluations, so cadence is not judged"
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


def _cadence(case: Case) -> Breaches:
    batch, evaluations = case.batch, in_samples(case)
    if case.ruleset == "0.7.0" or batch is None:
        return
    if not evaluations:
        if case.closed and case.evaluations:
            case.skip("cadence", "epoch_num doesn't count samples")
        return
    pairs = pairwise([(None, 0.0), *evaluations][not case.closed :])  # an open run's count may begin elsewhere
    gaps = [(one, after - at) for (_, at), (one, after) in pairs if one]
    stated = evaluation_interval(batch) if case.closed else case.number("bertbench_evaluation_interval")
    interval = stated or median([gap for _, gap in gaps] or [0.0])
    # Submitters round to whole batches up or down, per evaluation or once; packed batches vary in size by some percent.
    tolerance = batch + 0.01 * interval
    long = [pair for pair in gaps if pair[1] > interval + tolerance]
    short = [pair for pair in gaps if pair[1] < interval - tolerance]
    if not (long or short) or (not stated and _FEWEST_EVEN * len(long) > len(gaps)):
        return
    saved = round(sum(gap / interval - 1 for _, gap in long))
    steps = case.number(TRAINING_STEPS) or 0.0
    ended = evaluations[-1][1] >= (steps - 1) * batch > 0  # with training, which may end before the interval does
    gained = len(gaps) > 1 and short[-1:] == gaps[-1:] and not ended and gaps[-1][0] in reaching(case)
    # An evaluation more gains nothing; some implementations evaluate late for the first time, which saves one.
    mild = len(short) <= 2 and not gained and saved <= (long[:1] == gaps[:1])
    first, gap = min([*long, *short], key=lambda pair: pair[0].line)
    found = f"an evaluation after {gap:,.0f} more samples; {len(short)} early, {saved} saved"
    yield Breach(first.line, found, f"every {interval:,.0f} samples at batch {batch:,.0f}", "info" if mild else None)


def _eval_samples(case: Case) -> Breaches:
    for key in ("eval_samples", "num_eval_samples", "num_eval_examples") if case.closed else ():
        yield from odd(case, key, lambda value: value in (_HELD_OUT, [_HELD_OUT]))


RULES = (
    Rule(
        "accuracy", "An accuracy is a number from 0 to below 1", _QUALITY, "error",
        "log the share of masked tokens that were predicted", _accuracy,
    ),
    Rule(
        "target", "A closed run reaches accuracy 0.720 (round 0.7: 0.712, from batch 8,192 0.706), an open one its own",
        _QUALITY, "error", "train on, or submit it as the one run that did not converge", _target,
    ),
    Rule(
        "target-on-clock", "The target is reached between run_start and run_stop", _QUALITY, "error",
        "stop the clock after the evaluation that reaches the target", _target_on_clock,
    ),
    Rule(
        "epoch-num", "epoch_num is a number of at least 0 and grows (all the same: warning)",
        _RCP, "error", "log the training samples seen so far as epoch_num", _epoch_num_grows,
    ),
    Rule(
        "cadence",
        "Closed runs evaluate every floor(0.05 (230.23 batch + 3,000,000) / 25,000) x 25,000 samples, open ones evenly",
        _FREQUENCY, "warning", "set the evaluation interval by the formula; give all lines of the log", _cadence,
    ),
    Rule(
        "eval-samples", "A closed run evaluates on 10,000 samples", _QUALITY, "error",
        "evaluate on the whole evaluation set", _eval_samples,
    ),
)  # fmt: skip
