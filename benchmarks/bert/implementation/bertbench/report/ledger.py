"""Divide a run's wall clock, from submission to end, over restarts and requeues: goodput.

Reads timeline.jsonl (run_files/formats.py). Its records divide the time into stretches; work that a resumption
discarded becomes lost work, and the buckets of all stretches add up to the whole by construction.
"""

from pathlib import Path
from typing import NamedTuple

from bertbench.run_files.formats import BUCKETS, EVALUATION, IDLE, LOST, QUEUED, SNAPSHOT, TIMELINE, TRAINING, WAITING
from bertbench.run_files.reading import recorded
from compliance.read.run import number

_BEGUN = tuple(bucket for bucket in BUCKETS if bucket not in (WAITING, LOST))
_WORK = (TRAINING, EVALUATION, SNAPSHOT)


class _Stretch(NamedTuple):
    """One activity of a run between two moments, in seconds since 1970."""

    doing: str
    began: float
    ended: float
    step: int | None
    """The step whose snapshot was taken."""
    waited_s: float
    """Seconds of it spent waiting for samples."""
    cut: bool
    """Whether no record gives its end, because a queue followed."""


def ledger(log: Path) -> dict[str, float] | None:
    """Return the seconds of each bucket, by name, that make up the run's wall clock so far.

    None if the run has no timeline.
    """
    stretches = _stretches(log.with_suffix("") / TIMELINE)
    if not stretches:
        return None
    seconds = dict.fromkeys(BUCKETS, 0.0)
    for one in stretches:
        waited = min(one.waited_s, one.ended - one.began) if one.doing == TRAINING else 0.0
        seconds[one.doing] += one.ended - one.began - waited
        seconds[WAITING] += waited
    return seconds


def _stretches(path: Path) -> list[_Stretch]:
    """Return the stretches between the valid records, without what resumptions discarded."""
    records = (
        record
        for record in recorded(path)
        if (record.get("doing") in _BEGUN or isinstance(record.get("resumed"), int))
        and number(record.get("time")) is not None
    )
    done: list[_Stretch] = []
    now: tuple[str, float, int | None] | None = None  # what was begun last, when, and the step of a snapshot
    waited = 0.0
    for record in records:
        if "resumed" in record:
            done = _without_lost(done, record["resumed"], number(record.get("sign")))
            continue
        time = record["time"]
        if now:
            doing, began, step = now
            time = max(time, began)  # another machine's clock may be behind
            total = number(record.get("waited_s")) or 0.0
            queued = record.get("was") == QUEUED
            was = QUEUED if queued and doing == IDLE else doing
            done.append(_Stretch(was, began, time, step, max(0.0, total - waited), queued and doing != IDLE))
            waited = total
        now = record["doing"], time, record.get("step")
        if "status" in record:
            break
    return done


def _without_lost(done: list[_Stretch], step: int, sign: float | None) -> list[_Stretch]:
    """Turn work after a step's snapshot, or after the start, into lost work, up to the last heartbeat."""
    saved = [place for place, one in enumerate(done) if one.step == step]
    if step and not saved:  # the run is older than its timeline
        return done
    first = saved[-1] + 1 if saved else 0
    last = max((place for place, one in enumerate(done) if one.doing in _WORK), default=-1)
    outcome = done[:first]
    for place, one in enumerate(done[first:], start=first):
        if one.doing in _WORK:
            end = one.ended
            if place == last:
                unknown = one.began if one.cut else one.ended
                end = sign if sign is not None and one.began < sign < one.ended else unknown
            outcome.append(one._replace(doing=LOST, ended=end))
            one = one._replace(doing=QUEUED if one.cut else IDLE, began=end)  # noqa: PLW2901 - what is left of it
        outcome.append(one)
    return outcome
