"""Define trace.json, the one record of where a run's time went, in Chrome's Trace Event Format, which Perfetto opens.

The file is an array with an event a line. It is never closed, which the format allows: all attempts of a run append to
it, and nothing in it is ever removed. Times are in microseconds since 1970. This module loads neither torch nor the
judge.

| process | tracks | events |
| --- | --- | --- |
| RUN | the run | what the run does from then on, one of BUCKETS, until the next one begins |
| RUN | rank 0's start-up | the parts of the start-up |
| STEPS | one a rank | the phases of a step, one after another: the mean of the `steps` up to `step` |
| PIPELINE | two a rank | passes and waits, and messages, of a few steps |
| others | | what torch's profiler recorded (`train --profile`) |

An event of the run may have `args`. `waited_s`: for how long rank 0 has waited for samples since it started. `step`:
the steps taken when the copy for a snapshot began. `was` queued: before this, the job was in a queue, unless another
event says otherwise. `status`: how a finished run ended. The instant RESUMED says that the run resumed from the
snapshot of `step`, so later work is lost; `sign` is the previous attempt's last heartbeat, in seconds since 1970, if
known.
"""

from typing import Any

TRACE_FILE = "trace.json"
QUEUED = "queued"
START_UP = "start-up"
COMPILE = "compile"
TRAINING = "training"
EVALUATION = "evaluation"
SNAPSHOT = "snapshot"
WAITING = "waiting"
LOST = "lost work"
IDLE = "idle"
BUCKETS = (QUEUED, START_UP, COMPILE, TRAINING, EVALUATION, SNAPSHOT, WAITING, LOST, IDLE)
"""The parts of a run's wall-clock time; docs/reliability.md defines them."""
RESUMED = "resumed"

STARTUP_KEY = "startup"
"""Key of the log's event that says where the time before run_start went, on rank 0 and on the slowest rank."""
ENERGY_KEY = "energy"
"""Key of the log's event with the joules from run_start to run_stop, as the nodes' energy counters give them."""

RUN = 1_000_000  # numbers of processes, above all real ones
STEPS = 1_000_001
PIPELINE = 1_000_002
RUN_TRACK = 0
STARTUP_TRACK = 1
PASSES = ("forward", "backward")
"""The kinds of a pipeline's events in which a rank computes."""

Event = dict[str, Any]


def span(process: int, track: int, name: str, began_s: float, length_s: float, **more: Any) -> Event:
    """Return an event that began at a time, in seconds since 1970, and took some seconds."""
    times = {"ts": round(1e6 * began_s, 1), "dur": round(1e6 * length_s, 1)}
    return {"ph": "X", "name": name, "pid": process, "tid": track, **times, "args": more}


def track_name(process: int, track: int, name: str, **more: Any) -> Event:
    """Return the event that names a track."""
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": name, **more}}


def process_name(process: int, name: str) -> Event:
    """Return the event that names a process."""
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
