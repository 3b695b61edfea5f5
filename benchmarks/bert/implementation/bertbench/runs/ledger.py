"""Divide a run's wall-clock time, from submission to end, across restarts and requeues, to compute goodput.

The source is what trace.json says about the run (trace_format.py): it divides the time into stretches. Work that was
discarded when a run resumed becomes lost work. By construction, the buckets of all stretches add up to the whole time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bertbench.runs.trace_format import (
    BUCKETS,
    EVALUATION,
    IDLE,
    LOST,
    QUEUED,
    RESUMED,
    SNAPSHOT,
    TRAINING,
    WAITING,
)
from bertbench.runs.trace_reader import Activity
from compliance.read.run import number

_RECORDED = tuple(bucket for bucket in BUCKETS if bucket not in (WAITING, LOST))
"""The activities that a trace names; waiting and lost work are computed from its other fields."""
_WORK = (TRAINING, EVALUATION, SNAPSHOT)


@dataclass(frozen=True)
class _Begun:
    """An activity whose end hasn't been read yet."""

    doing: str
    time_s: float
    """Seconds since 1970."""
    step: int | None
    """The step whose snapshot is taken."""


@dataclass(frozen=True)
class _Stretch:
    """One activity of a run between two moments, in seconds since 1970."""

    doing: str
    began: float
    ended: float
    step: int | None
    """The step whose snapshot was taken."""
    waited_s: float
    """How many of its seconds were spent waiting for samples."""
    end_is_unknown: bool
    """Whether no record says when it ended, because the job was queued again."""


def ledger(activities: Sequence[Activity]) -> dict[str, float] | None:
    """Return the seconds in each bucket, by name; together they are the run's wall-clock time so far.

    Return None if nothing is known of a run's activities.
    """
    stretches = _stretches(activities)
    if not stretches:
        return None
    seconds = dict.fromkeys(BUCKETS, 0.0)
    for stretch in stretches:
        length = stretch.ended - stretch.began
        waited = min(stretch.waited_s, length) if stretch.doing == TRAINING else 0.0
        seconds[stretch.doing] += length - waited
        seconds[WAITING] += waited
    return seconds


def wall_clock(activities: Sequence[Activity]) -> dict[str, float] | None:
    """Return the ledger under the names of `report --json`, with the sum of all seconds, and the goodput.

    The goodput is the share of training that counts.
    """
    seconds = ledger(activities)
    if seconds is None:
        return None
    wall_s = sum(seconds.values())
    buckets = {f"{bucket.replace('-', '').replace(' ', '_')}_s": spent for bucket, spent in seconds.items()}
    return {"wall_s": wall_s, **buckets, "goodput": seconds[TRAINING] / wall_s if wall_s else 0.0}


def _stretches(activities: Sequence[Activity]) -> list[_Stretch]:
    """Return the stretches between activities; work that was discarded when the run resumed is lost work."""
    stretches: list[_Stretch] = []
    begun: _Begun | None = None
    waited_s = 0.0  # of the activities so far
    for activity in activities:
        details = activity.details
        if activity.name == RESUMED:
            last_heartbeat_s = number(details.get("sign"))
            stretches = _with_lost_work(stretches, details["step"], last_heartbeat_s)
            continue
        if activity.name not in _RECORDED:
            continue
        time_s = activity.time_s
        if begun:
            time_s = max(time_s, begun.time_s)  # the clock of another machine may be behind
            total_waited_s = number(details.get("waited_s")) or 0.0
            queue_followed = details.get("was") == QUEUED
            was_idle = begun.doing == IDLE
            stretches.append(
                _Stretch(
                    doing=QUEUED if queue_followed and was_idle else begun.doing,
                    began=begun.time_s,
                    ended=time_s,
                    step=begun.step,
                    waited_s=max(0.0, total_waited_s - waited_s),
                    end_is_unknown=queue_followed and not was_idle,
                )
            )
            waited_s = total_waited_s
        begun = _Begun(activity.name, time_s, details.get("step"))
        if "status" in details:
            break
    return stretches


def _with_lost_work(stretches: list[_Stretch], step: int, last_heartbeat_s: float | None) -> list[_Stretch]:
    """Return stretches in which work after a step's snapshot, or after the start, is lost work.

    The last work counts up to the run's last heartbeat, in seconds since 1970. After that the run was idle or in a
    queue.
    """
    snapshots = [place for place, stretch in enumerate(stretches) if stretch.step == step]
    if step and not snapshots:  # the trace has lost its beginning
        return stretches
    kept = snapshots[-1] + 1 if snapshots else 0
    last_work = max((place for place, stretch in enumerate(stretches) if stretch.doing in _WORK), default=-1)
    outcome = stretches[:kept]
    for place, stretch in enumerate(stretches[kept:], start=kept):
        if stretch.doing not in _WORK:
            outcome.append(stretch)
            continue
        end = _end_of_last_work(stretch, last_heartbeat_s) if place == last_work else stretch.ended
        outcome.append(replace(stretch, doing=LOST, ended=end))
        outcome.append(replace(stretch, doing=QUEUED if stretch.end_is_unknown else IDLE, began=end))
    return outcome


def _end_of_last_work(work: _Stretch, last_heartbeat_s: float | None) -> float:
    """Return when the last work ended: at the last heartbeat if that is known, otherwise according to the records."""
    if last_heartbeat_s is not None and work.began < last_heartbeat_s < work.ended:
        return last_heartbeat_s
    return work.began if work.end_is_unknown else work.ended  # no record says how long work continued before the queue
