"""training_rules.adoc, "Run Results": what is on the clock, when it starts, and that it runs once.

Even in sound logs, lines of several hosts may be out of order by some seconds, and the hosts' clocks differ. The rules
look only at what decides the score: the start, the stop, and what must lie between them.
"""

import math

from compliance.read.case import Case
from compliance.read.record import shown
from compliance.rules.rule import OLDEST, TRAINING_RULES, Checked, Fault, Gap, Source, rule, unsound

_RUN_RESULTS = Source(TRAINING_RULES, "Run Results")
_DEFINITIONS = Source(TRAINING_RULES, "Definitions (read this section carefully)")
_MOST_SKEW_MS = 1e3
_LEAST_SKEW_MS = 10.0
_SKEW_OF_RUN = 0.002
_EARLIEST_MS = 1_546_300_800_000
_LATEST_MS = 4_102_444_800_000
"""2019 to 2100 in milliseconds since 1970. Times in seconds, microseconds or nanoseconds lie outside this range."""
_LONGEST_SINCE_START_MS = 1e9
"""A clock may also count from its own start, because the score is a difference."""
_USES_DATA = ("block_start", "epoch_start", "eval_start", "eval_accuracy")


def allowance_ms(case: Case) -> float:
    """Return how far the clocks of a run's hosts may differ: 1 s, or 0.2 % of a short run, but at least 10 ms."""
    seconds = abs(case.time_to_train_s or math.inf)
    return min(_MOST_SKEW_MS, max(_LEAST_SKEW_MS, _SKEW_OF_RUN * 1e3 * seconds))


@rule(
    "run-once", _RUN_RESULTS, "A result is one contiguous period, from one run_start to one run_stop",
    "write the log of each run to a file of its own", since=OLDEST,
)  # fmt: skip
def clock_runs_once(case: Case) -> Checked:
    """Find more starts and stops, which make the score ambiguous. Two hosts may log one each at the same time."""
    for key in ("run_start", "run_stop"):
        for event in case.all(key)[1:]:
            first = case.all(key)[0]
            apart_ms = abs(event.time_ms - first.time_ms)
            if not apart_ms <= allowance_ms(case):  # NaN isn't
                yield Fault(event.line, f"another {key}, {apart_ms / 1e3:.3f} s away from the one on line {first.line}")


@rule(
    "run-order", _RUN_RESULTS, "The clock stops after it starts", "check the host's clock", since=OLDEST,
)  # fmt: skip
def clock_stops_after_its_start(case: Case) -> Checked:
    start = case.first("run_start")
    stop = case.first("run_stop")
    if start is None or stop is None:
        return  # the official checker reports a missing event
    early_ms = start.time_ms - stop.time_ms
    if early_ms >= 0:
        yield Fault(stop.line, f"run_stop {early_ms / 1e3:.3f} s before run_start")
    elif stop.line < start.line:
        yield Fault(
            stop.line,
            f"run_stop above run_start, which is on line {start.line}",
            "run_stop on a later line, as the log checker's common.yaml requires",
        )


@rule(
    "time", Source("mlcommons/logging, mllog", "time_ms"),
    "run_start and run_stop have times in milliseconds since 1970, or since the run's own start",
    "log the host's time in milliseconds", since=OLDEST,
)  # fmt: skip
def clock_counts_milliseconds(case: Case) -> Checked:
    for key in ("run_start", "run_stop"):
        for event in case.all(key):
            is_since_start = 0 <= event.time_ms < _LONGEST_SINCE_START_MS
            is_since_1970 = _EARLIEST_MS <= event.time_ms <= _LATEST_MS
            if not (is_since_start or is_since_1970):
                yield Fault(event.line, f"{key} with time_ms {event.time_ms:.15g}")


def _init_limit_minutes(case: Case) -> int:
    """Return the longest untimed initialisation, in minutes.

    In rounds 1.0 and 1.1, "Run Results" says 20. Round 1.0 allows 30 in "Appendix: v1.0 Specific Rules, Compile time".
    The text of round 1.1 keeps that exception for round 1.0 only, but its log checker allows 30, and results were
    published under it, so we allow 30, too. Since round 2.0, it is 30 for the closed and 240 for the open division.
    """
    if case.ruleset < "1.0.0":
        return 20
    if case.division == "open" and case.ruleset >= "2.0.0":
        return 240
    return 30


@rule(
    "init-time", Source(TRAINING_RULES, "Run Results; in 1.0, v1.0 Specific Rules, Compile time"),
    "Initialisation is untimed for 30 minutes at most (open division from 2.0 on: 4 hours; round 0.7: 20 minutes)",
    "initialise faster, or start the clock when the limit is reached", since=OLDEST,
)  # fmt: skip
def long_initialisation_is_on_the_clock(case: Case) -> Checked:
    """Find initialisations that are too long.

    Initialisation begins with the construction of the model. A log shows it from init_start to init_stop; what happens
    between init_stop and run_start isn't initialisation. The clock starts when the limit is exceeded, so a longer
    initialisation breaks the rule only if the clock starts later than that.
    """
    starts = case.all("init_start")
    stop = case.first("init_stop")
    run_start = case.first("run_start")
    if not starts or stop is None or run_start is None:
        return  # the official checker reports a missing event
    limit = _init_limit_minutes(case)
    began_ms = min(start.time_ms for start in starts)
    minutes = (stop.time_ms - began_ms) / 60e3
    until_clock = (run_start.time_ms - began_ms) / 60e3
    if minutes > limit and until_clock > limit:
        yield Fault(stop.line, f"{minutes:.2f} minutes from init_start to init_stop", f"at most {limit} minutes")


@rule(
    "on-clock", _RUN_RESULTS, "The clock starts before any part of the system touches the dataset",
    "start the clock before the first training sample is read",
)  # fmt: skip
def data_is_used_on_the_clock(case: Case) -> Checked:
    """Find training and evaluation before the clock starts; after the target is reached, a last block may run on."""
    start = case.first("run_start")
    if start is None:
        return
    for key in _USES_DATA:
        for event in case.all(key):
            allowed_ms = 0.0 if event.line < start.line else allowance_ms(case)
            early_ms = start.time_ms - event.time_ms
            if early_ms > allowed_ms:
                yield Fault(event.line, f"{key} {early_ms / 1e3:.3f} s before run_start")


@rule(
    "resumed", _RUN_RESULTS, "The clock isn't paused: the time of a resumed run includes the interruption",
    "publish the interruption with the result; the time counts from the first run_start, and includes lost work",
)  # fmt: skip
def clock_is_not_paused(case: Case) -> Checked:
    """Look at resumptions, which bertbench numbers and logs as `resumed`; other loggers have no key for them.

    A log that lacks one of the numbers has lost a part of the run.
    """
    resumptions = case.all("resumed")
    if not resumptions:
        return
    last = resumptions[-1]
    counts = [event.value for event in resumptions]
    logged = (
        f"resumptions {shown(counts)}, the last from a snapshot after {shown(last.metadata.get('samples'))} samples; "
        f"cause: {shown(last.metadata.get('after'))}"
    )
    if counts == [*range(1, len(counts) + 1)]:
        yield Gap(f"line {last.line}: {logged}; the log can't show that the clock kept running")
    else:
        yield Fault(last.line, logged, "a complete log, with resumptions 1, 2, 3 and so on")


@rule(
    "not-a-result", _DEFINITIONS, "A result is a complete run; bertbench's --smoke and --profile don't make one",
    "make a complete run, without --smoke and --profile",
)  # fmt: skip
def run_is_a_result(case: Case) -> Checked:
    yield from unsound(case, "not_a_result", lambda _: False)


RULES = (
    clock_runs_once, clock_stops_after_its_start, clock_counts_milliseconds, long_initialisation_is_on_the_clock,
    data_is_used_on_the_clock, clock_is_not_paused, run_is_a_result,
)  # fmt: skip
