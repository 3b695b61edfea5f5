"""Rules about time: what is on the clock, and that it runs once.

Lines of several writers may stand out of order by some seconds in sound logs, so where the order of lines and that of
times disagree, that alone is no error.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

from compliance.finding import Breach, Case, Rule, Severity
from compliance.log import Event
from compliance.record import shown
from compliance.run import number

_CLOCK = "training_rules.adoc, section on run results"
_INIT = "training_rules.adoc, section on run results (initialisation)"
_LOGGING = "mlcommons/logging, compliance_checker (common.yaml)"
SKEW_MS = 1e3  # between the clocks of a run's hosts


def _once(case: Case) -> Iterator[Breach]:
    starts, stops = case.facts.all("run_start"), case.facts.all("run_stop")
    order = [event.key for event in sorted([*starts, *stops], key=lambda event: event.line)]
    two_runs = order == ["run_start", "run_stop"] * (len(order) // 2) and len(order) > 2
    for key, events in (("run_start", starts), ("run_stop", stops)):
        for event in events[1:]:
            moved = abs(event.time_ms - events[0].time_ms)
            found = f"a further {key}, {moved / 1e3:.3f} s from the one on line {events[0].line}"
            if two_runs:
                found += ": more than one run in the file"
            harmless = moved <= SKEW_MS and not two_runs
            yield Breach(event.line, found, None, "warning" if harmless else "error")


def _whole(case: Case) -> Iterator[Breach]:
    for key in ("run_start", "run_stop"):
        if case.facts.first(key) is None:
            yield Breach(None, f"no {key}")


def _success(case: Case) -> Iterator[Breach]:
    for event in case.facts.all("run_stop"):
        status = event.metadata.get("status")
        if status != "success":
            best = case.facts.best_accuracy
            reached = "" if best is None else f"; best accuracy {best:.5g}"
            yield Breach(event.line, f"run_stop with status {shown(status)}{reached}")


def _order(case: Case) -> Iterator[Breach]:
    start, stop = case.facts.first("run_start"), case.facts.first("run_stop")
    if start is None or stop is None:
        return
    if stop.time_ms <= start.time_ms:
        yield Breach(stop.line, f"run_stop {(start.time_ms - stop.time_ms) / 1e3:.3f} s before run_start")
    elif stop.line < start.line:
        yield Breach(stop.line, f"run_stop before run_start, which is on line {start.line}")


def _init_time(case: Case) -> Iterator[Breach]:
    stop, limit = case.facts.first("init_stop"), _init_limit_minutes(case)
    starts = [event.time_ms for event in case.facts.all("init_start") if stop is None or event.line < stop.line]
    if stop is None or not starts:
        return
    minutes = (stop.time_ms - min(starts)) / 60e3
    if minutes >= limit:
        yield Breach(stop.line, f"{minutes:.2f} minutes of initialisation", f"less than {limit} minutes")
    if minutes < -SKEW_MS / 60e3:
        yield Breach(stop.line, f"init_stop {-60 * minutes:.1f} s before init_start", None, "warning")


def _init_limit_minutes(case: Case) -> int:
    if case.ruleset == "0.7.0":
        return 20
    return 240 if case.facts.division == "open" and case.ruleset >= "2.0.0" else 30


def _init_before_run(case: Case) -> Iterator[Breach]:
    start = case.facts.first("run_start")
    for event in [*case.facts.all("init_start"), *case.facts.all("init_stop")]:
        if start is not None and event.time_ms > start.time_ms + SKEW_MS:
            yield Breach(event.line, f"{event.key} {(event.time_ms - start.time_ms) / 1e3:.1f} s after run_start")


def _on_clock(case: Case) -> Iterator[Breach]:
    first, last = case.facts.first("run_start"), case.facts.first("run_stop")
    if first is None or last is None or last.time_ms <= first.time_ms:
        return
    start, stop = first.time_ms, last.time_ms
    for key in ("block_start", "block_stop", "epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy"):
        for event in case.facts.all(key):
            # By line and time; by time alone, only where it is more than the skew of two clocks.
            if event.time_ms < start - (0 if event.line < first.line else SKEW_MS):
                yield Breach(event.line, f"{key} {(start - event.time_ms) / 1e3:.3f} s before run_start")
            elif event.time_ms > stop + (0 if event.line > last.line else SKEW_MS):
                yield Breach(event.line, f"{key} {(event.time_ms - stop) / 1e3:.3f} s after run_stop")


def _times(case: Case) -> Iterator[Breach]:
    for event in case.log.events:
        if not math.isfinite(event.time_ms) or event.time_ms < 0:
            severity: Severity = "error" if event.key in ("run_start", "run_stop") else "warning"
            yield Breach(event.line, f"{event.key} with time_ms {event.time_ms}", None, severity)


def _intervals(case: Case) -> Iterator[Breach]:
    for kind in ("block", "epoch", "eval"):
        starts, stops = case.facts.all(f"{kind}_start"), case.facts.all(f"{kind}_stop")
        names = {_name(event) for event in starts} & {_name(event) for event in stops}
        if len(names) < 2 or 2 * len(names) < max(len(starts), len(stops)):
            continue  # this log doesn't name its intervals alike at start and stop, or has one: nothing to compare
        last = max(starts, key=lambda event: event.line)
        for event in starts:
            if _name(event) not in names and event is not last:
                yield Breach(event.line, f"{event.key} of {shown(_name(event))} without a stop")
        for event in stops:
            if _name(event) not in names:
                yield Breach(event.line, f"{event.key} of {shown(_name(event))} without a start")
        began = {_name(event): event.time_ms for event in starts}
        for event in stops:
            early = began.get(_name(event), event.time_ms) - event.time_ms
            if early > SKEW_MS:
                yield Breach(event.line, f"{event.key} {early / 1e3:.1f} s before its start")
        yield from _without_accuracy(case, names) if kind == "eval" else ()


def _without_accuracy(case: Case, names: set[float]) -> Iterator[Breach]:
    measured = {_name(event) for event in case.facts.all("eval_accuracy")}
    if 2 * len(measured & names) < len(names):
        return
    for event in case.facts.all("eval_stop"):
        if _name(event) in names - measured:
            yield Breach(event.line, f"an evaluation at {shown(_name(event))} without eval_accuracy")


def _name(event: Event) -> float:
    metadata = event.metadata
    for field in ("first_epoch_num", "epoch_num", "samples_count", "step_num"):
        if (value := number(metadata.get(field))) is not None:
            return value
    return math.nan  # equal to nothing


def _contiguous(case: Case) -> Iterator[Breach]:
    blocks = [
        (event, first, count)
        for event in case.facts.all("block_start")
        if (first := number(event.metadata.get("first_epoch_num"))) is not None
        and (count := number(event.metadata.get("epoch_count"))) is not None
    ]
    gaps = [
        (event, first, previous + count)
        for (_, previous, count), (event, first, _) in pairwise(blocks)
        if first != previous + count
    ]
    # Logs that count otherwise have gaps throughout; a sound one of ours has none.
    if 0 < 3 * len(gaps) <= len(blocks) - 1:
        for event, first, due in gaps:
            yield Breach(event.line, f"a block from {first:,.0f}", f"a block from {due:,.0f}, where the last one ended")


def _in_one_go(case: Case) -> Iterator[Breach]:
    resumptions = case.facts.all("resumed")
    if not resumptions:
        return
    last = resumptions[-1]
    times = "once" if len(resumptions) == 1 else f"{len(resumptions)} times, the last"
    samples = number(last.metadata.get("samples"))
    where = "" if samples is None else f" from a snapshot after {samples:,.0f} samples"
    cause = shown(last.metadata.get("after"))
    yield Breach(last.line, f"resumed {times}{where}; what had ended it: {cause}", "no interruption")


def _counted(case: Case) -> Iterator[Breach]:
    for due, event in enumerate(case.facts.all("resumed"), start=1):
        if event.value != due:
            yield Breach(event.line, f"resumption {shown(event.value)}", f"resumption {due}")
            return


def _all_samples(case: Case) -> Iterator[Breach]:
    for event in case.facts.all("samples_skipped"):
        step = shown(event.metadata.get("step"))
        yield Breach(event.line, f"{shown(event.value)} left out of step {step}", "every sample of every batch")


RULES = (
    Rule(
        "run-once", "A log holds one run: one run_start and one run_stop", _CLOCK, "error",
        "give each run a file of its own, with its own lines only", _once,
    ),
    Rule(
        "run-whole", "A log reaches from run_start to run_stop", _CLOCK, "error",
        "look whether the run was stopped, or the file cut", _whole,
    ),
    Rule(
        "run-success", "The run ends with status success", _CLOCK, "error",
        "an aborted run counts as one that did not converge; submit it only as such", _success,
    ),
    Rule(
        "resumed", "A run trains in one go; one that was interrupted and went on says so", _CLOCK, "warning",
        "say so where you publish it; its time counts from the first run_start, lost work included", _in_one_go,
    ),
    Rule(
        "resumed-count", "Resumptions count 1, 2, 3, ...: none was taken out of the log", _CLOCK, "error",
        "hand in the log as the run wrote it", _counted,
    ),
    Rule(
        "skipped", "A run trains on every sample of its batches; one that left damaged ones out says so", _CLOCK,
        "warning", "mend the data and run again; say how many were left out where you publish it", _all_samples,
    ),
    Rule("run-order", "run_stop follows run_start", _CLOCK, "error", "look at the clock of the host", _order),
    Rule(
        "init-time", "Initialisation is within its limit: 30 minutes closed, 240 open (before round 2.0: 20 or 30)",
        _INIT, "error", "initialise faster; what takes longer belongs on the clock", _init_time,
    ),
    Rule(
        "init-before-run", "Initialisation ends before the clock starts", _INIT, "warning",
        "log init_stop before run_start", _init_before_run,
    ),
    Rule(
        "on-clock", "Training and evaluation happen between run_start and run_stop", _CLOCK, "warning",
        "start the clock before the first training sample is touched, stop it after the last evaluation", _on_clock,
    ),
    Rule(
        "time", "Times are milliseconds since 1970, finite and not negative", _LOGGING, "warning",
        "log the host's time", _times,
    ),
    Rule(
        "intervals", "Every block, epoch and evaluation that starts also stops, and is evaluated", _LOGGING, "warning",
        "look whether lines were lost", _intervals,
    ),
    Rule(
        "blocks-contiguous", "A block of training starts where the one before ended", _LOGGING, "warning",
        "look whether lines were lost", _contiguous,
    ),
)  # fmt: skip
