"""Rules about time: what is on the clock, and that it runs once.

In sound logs, lines of several writers may be out of order by some seconds. A different order of lines and times is
therefore no error by itself. The rules look at what decides the score: the first block and the evaluation at the
target.
"""

import math
from bisect import bisect
from operator import attrgetter

from compliance.finding import Breach, Breaches, Case, Rule, Severity, odd
from compliance.record import shown
from compliance.rules.quantities import measured
from compliance.rules.samples import reaching
from compliance.run import numeric

_CLOCK = "training_rules.adoc: run results"
_LOGGING = "mlcommons/logging, compliance_checker"
SKEW_MS = 1e3  # between the clocks of a run's hosts
_SKEW_OF_RUN = 0.002  # a second for a run of 500 s; in a short run, a second would change the result
_LEAST_SKEW_MS = 10.0
# 2019 to 2100 in ms since 1970; the same time in s, us or ns lies outside. A clock that counts from its own start is
# harmless: the score is a difference, and `rate` finds a wrong unit.
_EARLIEST_MS, _LATEST_MS = 1_546_300_800_000, 4_102_444_800_000
_LONGEST_OWN_MS = 1e9
_TIME = attrgetter("time_ms")
# Hosts start at different times: the first of them, or the last, precedes the other event.
_ORDER = (
    (min, "init_start", "init_stop"), (max, "init_start", "run_start"), (max, "init_stop", "run_start"),
    (min, "run_start", "run_stop"),
)  # fmt: skip
_USES_DATA = ("rate", "loss", "data")  # none of 1,027 published passes logs one before its clock starts
COURSE = (
    "run_start", "block_start", "block_stop", "epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy",
    "run_stop",
)  # fmt: skip


def _once(case: Case) -> Breaches:
    for first, *further in filter(None, map(case.all, ("run_start", "run_stop"))):
        for event in further:
            moved = abs(event.time_ms - first.time_ms)
            found = f"a further {event.key}, {moved / 1e3:.3f} s from the one on line {first.line}"
            yield Breach(event.line, found, None, "warning" if moved <= allowance_ms(case) else "error")


def _success(case: Case) -> Breaches:
    for event in case.all("run_stop"):
        status = event.metadata.get("status")
        if status != "success":
            yield Breach(event.line, f"run_stop with status {shown(status)}")


def _order(case: Case) -> Breaches:
    for pick, first, then in _ORDER:
        before, after = case.all(first), case.first(then)
        if not before or after is None:
            continue
        event, run = pick(before, key=_TIME), then == "run_stop"
        early = event.time_ms - after.time_ms
        if early >= 0 if run else early > SKEW_MS:
            found = f"{then} {early / 1e3:.3f} s before {first}"
            yield Breach(after.line, found, None, "error" if run else "warning")
        elif run and after.line < event.line:
            yield Breach(after.line, f"{then} before {first}, which is on line {event.line}")


def _init_time(case: Case) -> Breaches:
    """Bound untimed work as a sum: initialisation, and the wait for the clock; published runs take 29 minutes."""
    start, stop, limit = case.first("run_start"), case.first("init_stop"), _init_limit_minutes(case)
    last, starts = start or stop, case.all("init_start")
    if last is None or not starts:
        return
    line = (stop or last).line
    minutes = (last.time_ms - min(map(_TIME, starts))) / 60e3
    if minutes >= limit:
        yield Breach(line, f"{minutes:.2f} minutes from init_start to {last.key}", f"less than {limit} minutes")
    before = [
        event for event in case.log.events
        # published runs log cache_clear at 0
        if event.line < last.line and last.time_ms - event.time_ms < _LONGEST_OWN_MS
    ]  # fmt: skip
    first = min(before, key=_TIME, default=last)
    waited = (last.time_ms - first.time_ms) / 60e3
    if waited >= limit > minutes:
        found = f"{first.key} {waited:.2f} minutes before {last.key}"
        yield Breach(first.line, found, f"less than {limit} minutes", "warning")


def _init_limit_minutes(case: Case) -> int:
    if case.ruleset == "0.7.0":
        return 20
    return 240 if case.division == "open" and case.ruleset >= "2.0.0" else 30


def allowance_ms(case: Case) -> float:
    """Return the allowed difference between the clocks of a run's hosts: a second, or a share of a short run."""
    seconds = abs(case.time_to_train_s or math.inf)
    return min(SKEW_MS, max(_LEAST_SKEW_MS, _SKEW_OF_RUN * 1e3 * seconds))


def _on_clock(case: Case) -> Breaches:
    first, last = case.first("run_start"), case.first("run_stop")
    if first is None or last is None or last.time_ms <= first.time_ms:
        return
    start, stop, allowed = first.time_ms, last.time_ms, allowance_ms(case)
    # Early by line and time; or by time alone, if by more than the clocks may differ.
    early = [event for event in case.log.events if event.time_ms <= start - allowed * (event.line > first.line)]
    for event in (event for event in early if event.key not in COURSE):
        for kind, name, value in measured(event):
            # names in the plural are of settings, and of a warm-up
            progress = kind in ("steps", "samples") and name[-1] != "s" and (numeric(value) or 0.0) > 0
            if kind in _USES_DATA or progress:
                found = f"{name} {shown(value)} of {event.key} before run_start"
                certain = name == event.key and (kind in ("rate", "loss") or name.endswith("data_file"))
                yield Breach(event.line, found, None, "error" if certain else "warning")
                break
    for key in COURSE[1:-1]:
        trained = key.startswith(("block", "epoch"))
        surplus = _after_the_target(case, key.partition("_")[0])
        for event in case.all(key):
            if event.time_ms < start - (0 if event.line < first.line else allowed):
                found = f"{key} {(start - event.time_ms) / 1e3:.3f} s before run_start"
                yield Breach(event.line, found, None, "error" if trained else "warning")
            elif event.time_ms > stop + (0 if event.line > last.line else allowed) and event.line not in surplus:
                yield Breach(event.line, f"{key} {(event.time_ms - stop) / 1e3:.3f} s after run_stop")


def _after_the_target(case: Case, kind: str) -> set[int]:
    """Return the lines of surplus blocks, or epochs: training had already reached the target, or its end.

    Some implementations evaluate in parallel and keep training until they know the accuracy; that block is surplus.
    """
    evaluations = (reaching(case) if case.closed else []) or case.evaluations[-1:]
    if kind not in ("block", "epoch") or not evaluations:
        return set()
    starts, target_ms = case.all(f"{kind}_start"), evaluations[0].time_ms
    surplus = {event.line for event in starts if event.time_ms >= target_ms}
    last_needed = max((event.time_ms for event in starts if event.time_ms < target_ms), default=-math.inf)
    lines = [event.line for event in starts]  # in file order
    for stop in case.all(f"{kind}_stop"):
        index = bisect(lines, stop.line) - 1
        if index < 0 or starts[index].time_ms >= last_needed:
            surplus.add(stop.line)
    return surplus


def _plausible(time_ms: float) -> bool:
    return 0 <= time_ms < _LONGEST_OWN_MS or _EARLIEST_MS <= time_ms <= _LATEST_MS


def _times(case: Case) -> Breaches:
    for event in case.log.events:
        if not _plausible(event.time_ms):
            found, decides = f"{event.key} with time_ms {event.time_ms:.15g}", event.key in ("run_start", "run_stop")
            yield Breach(event.line, found, None, "error" if decides else "warning")


def _in_one_go(case: Case) -> Breaches:
    resumptions = case.all("resumed")
    if not resumptions:
        return
    last, counts = resumptions[-1], [event.value for event in resumptions]
    found = f"resumptions {shown(counts)}, the last from a snapshot after {shown(last.metadata.get('samples'))}"
    severity: Severity = "warning" if counts == [*range(1, len(counts) + 1)] else "error"
    yield Breach(last.line, f"{found} samples; cause: {shown(last.metadata.get('after'))}", None, severity)


def _all_samples(case: Case) -> Breaches:
    return odd(case, "samples_skipped", lambda _: False, "every sample of every batch")


RULES = (
    Rule(
        "run-once", "A log has one run_start and one run_stop", _CLOCK, "error",
        "give each run a file of its own, with its own lines only", _once,
    ),
    Rule(
        "run-success", "The run ends with status success", _CLOCK, "error",
        "an aborted run counts as one that did not converge; submit it only as such", _success,
    ),
    Rule(
        "resumed", "A run trains without interruption (resumptions not counted 1, 2, 3, ...: error)", _CLOCK, "warning",
        "publish the interruption with the result; time counts from the first run_start, lost work included",
        _in_one_go,
    ),
    Rule(
        "skipped", "A run trains on every sample of its batches", _CLOCK,
        "warning", "repair the data and run again, or publish the number of skipped samples", _all_samples,
    ),
    Rule(
        "run-order", "init_start, init_stop, run_start and run_stop follow each other (before run_start: warning)",
        _CLOCK, "error", "check the clock of the host", _order,
    ),
    Rule(
        "init-time",
        "Initialisation and the wait for run_start take under 30 minutes, open 240 (0.7: 20; open before 2.0: 30)",
        _CLOCK, "error", "initialise faster; longer work belongs on the clock", _init_time,
    ),
    Rule(
        "on-clock", "Training and evaluation lie between run_start and run_stop (training before: error)",
        _CLOCK, "warning",
        "start the clock before the first training sample is read, stop it after the last evaluation", _on_clock,
    ),
    Rule(
        "time", "Times are milliseconds since 1970, in 2019 to 2100, or since the run's own start",
        _LOGGING, "warning", "log the host's time in milliseconds", _times,
    ),
)  # fmt: skip
