"""Read from a log where a run's time went, into the parts of start-up and into evaluations, and what energy it took.

bertbench logs the parts of start-up, from launch to first step, as the event `startup`, and the energy as the event
`energy`. Everything else is in any MLPerf log.
"""

import math
from typing import Any

from bertbench.runs.trace_format import ENERGY_KEY, STARTUP_KEY
from compliance.read.run import RunFacts, number

UNTIMED = ("launcher", "imports", "meeting", "files", "caches", "data", "model", "warm-up", "rest", "waiting")
"""The parts from launch to run_start, in this order."""
TIMED = ("plan", "shards", "first batch", "first step")
"""The parts from run_start to the end of the first step."""


def startup(facts: RunFacts) -> dict[str, dict[str, float]] | None:
    """Return the seconds of each part of start-up in the log; None if the log has no timed parts.

    `untimed_s` and `timed_s` are those of the rank that writes the log; `slowest_s` is, for each part, that of the
    slowest rank.
    """
    event = facts.first(STARTUP_KEY)
    if event is None:
        return None
    seconds = _seconds(event.metadata.get("seconds"))
    timed = {piece: seconds[piece] for piece in TIMED if piece in seconds}
    if not timed:
        return None
    untimed = {piece: seconds[piece] for piece in UNTIMED if piece in seconds}
    return {"untimed_s": untimed, "timed_s": timed, "slowest_s": _seconds(event.metadata.get("slowest"))}


def startup_s(facts: RunFacts) -> float | None:
    """Return the seconds from run_start to the start of the first step or, if unknown, to the first block."""
    pieces = startup(facts)
    if pieces is not None:
        before_first_step = [seconds for piece, seconds in pieces["timed_s"].items() if piece != TIMED[-1]]
        return sum(before_first_step)
    first_block = next((event for event in facts.events() if event.key in ("block_start", "epoch_start")), None)
    if first_block is None or facts.started_ms is None or not math.isfinite(first_block.time_ms):
        return None
    return (first_block.time_ms - facts.started_ms) / 1e3


def evaluation_s(facts: RunFacts) -> float:
    """Return the sum of the seconds between eval_start and eval_stop."""
    total_s = 0.0
    started_ms: float | None = None
    for event in facts.events():
        if not math.isfinite(event.time_ms):
            continue
        if event.key == "eval_start":
            started_ms = event.time_ms
        elif event.key == "eval_stop" and started_ms is not None:
            total_s += (event.time_ms - started_ms) / 1e3
            started_ms = None
    return total_s


def energy(facts: RunFacts) -> dict[str, Any] | None:
    """Return the joules from run_start to run_stop, and those of each kind of counter; None if none was read."""
    event = facts.first(ENERGY_KEY)
    joules = number(event.value) if event else None
    if event is None or joules is None:
        return None
    logged = event.metadata.get("counters")
    counters = {}
    for kind, gained in logged.items() if isinstance(logged, dict) else ():
        gained_j = number(gained)
        if gained_j is not None:
            counters[str(kind)] = gained_j
    return {"joules": joules, "counters": counters}


def _seconds(content: Any) -> dict[str, float]:
    """Return the known parts in an object of a log, which may contain anything."""
    logged = content if isinstance(content, dict) else {}
    seconds = {}
    for piece in (*UNTIMED, *TIMED):
        value = number(logged.get(piece))
        if value is not None:
            seconds[piece] = value
    return seconds
