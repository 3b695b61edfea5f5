"""Read from a log where a run's time went: the pieces of its start-up, its evaluations.

bertbench logs the pieces, from launch to first step, as event `startup`; anybody's logs give the rest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bertbench.common.timeline import STARTUP_KEY

if TYPE_CHECKING:  # a run, which logs the pieces, loads no judge
    from compliance.read.run import RunFacts

UNTIMED = ("launcher", "imports", "meeting", "files", "caches", "data", "model", "warm-up", "rest", "waiting")
"""From launch to run_start, in this order; docs/running.md explains each."""
TIMED = ("plan", "shards", "first batch", "first step")
"""From run_start to the end of the first step."""


def startup(facts: RunFacts) -> dict[str, dict[str, float]] | None:
    """Return the seconds of start-up's pieces that the log gives, or None without any on the clock.

    `untimed_s` and `timed_s` are the logging rank's, `slowest_s` each piece's slowest rank's.
    """
    event = facts.first(STARTUP_KEY)
    first, slowest = (_seconds(event.metadata.get(name)) if event else {} for name in ("seconds", "slowest"))
    timed = {piece: first[piece] for piece in TIMED if piece in first}
    untimed = {piece: first[piece] for piece in UNTIMED if piece in first}
    return {"untimed_s": untimed, "timed_s": timed, "slowest_s": slowest} if timed else None


def startup_s(facts: RunFacts) -> float | None:
    """Return the seconds from run_start to the start of the first step, or else to the first block."""
    if pieces := startup(facts):
        return sum(seconds for piece, seconds in pieces["timed_s"].items() if piece != TIMED[-1])
    first = next((event for event in facts.events() if event.key in ("block_start", "epoch_start")), None)
    if first is None or facts.started_ms is None or not math.isfinite(first.time_ms):
        return None
    return (first.time_ms - facts.started_ms) / 1e3


def evaluation_s(facts: RunFacts) -> float:
    """Return the sum of the seconds between eval_start and eval_stop."""
    total, started = 0.0, None
    for event in (event for event in facts.events() if math.isfinite(event.time_ms)):
        if event.key == "eval_start":
            started = event.time_ms
        elif event.key == "eval_stop" and started is not None:
            total, started = total + (event.time_ms - started) / 1e3, None
    return total


def _seconds(content: Any) -> dict[str, float]:
    """Return the known pieces of a log's object, which may hold anything."""
    from compliance.read.run import number  # noqa: PLC0415 - see above

    known = content if isinstance(content, dict) else {}
    return {piece: seconds for piece in (*UNTIMED, *TIMED) if (seconds := number(known.get(piece))) is not None}
