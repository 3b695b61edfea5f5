"""Tabulate where the time of a step goes, from a trace of a few steady steps (`train --profile`).

torch writes traces in Chrome's Trace Event Format: `ts` and `dur` are in microseconds; `cat` is cpu_op, user_annotation
(ours, and torch's ProfilerStep#n) or, on a GPU, kernel or gpu_mem*. GPU events have the `External id` of the operator
that launched them. Each moment of a step counts once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bertbench.common.markup import aligned
from bertbench.common.phase_clock import ALL_REDUCE, BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, REPLAY, STAGE_WAIT

_STEP = "ProfilerStep#"
_PHASES = (DATA_WAIT, FORWARD, BACKWARD, ALL_REDUCE, OPTIMIZER, REPLAY)
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST = "the rest of the loop"
IDLE = "the GPU waits for the host"
Event = dict[str, Any]


class Interval(NamedTuple):
    """A part of a step and the time at which it ran, in microseconds."""

    start: float
    end: float
    part: str

    @classmethod
    def of(cls, span: Event, part: str) -> "Interval":
        """Return the time of an event, as an interval of a part."""
        return cls(span["ts"], _end(span), part)


def where(events: Iterable[Event]) -> dict[str, float]:
    """Return the milliseconds that each phase takes in a step, the longest first; they add up to a step.

    If the trace contains a GPU, the time that is divided is the GPU's, including its idle time.
    """
    spans = [event for event in events if event.get("ph") == "X" and "dur" in event]
    host = [span for span in spans if span.get("cat") in ("cpu_op", "user_annotation")]
    steps = [span for span in host if span["name"].startswith(_STEP)]
    main = steps[0]["tid"]
    ours = [Interval.of(span, span["name"]) for span in host if span["tid"] == main]
    phases = [interval for interval in ours if interval.part in _PHASES]
    phases.sort(key=lambda phase: (phase.start, -phase.end))  # outer phases first
    stage_waits = [interval for interval in ours if interval.part == STAGE_WAIT]  # they contain the passes
    kernels = [span for span in spans if span.get("cat") in _ON_DEVICE]
    if kernels:
        first_ts = min(step["ts"] for step in steps)
        last_ts = max(map(_end, steps))
        on_device = list(_on_device(kernels, host, main, phases))
        sums = [interval for interval in on_device if interval.part == ALL_REDUCE]  # counted only if nothing else runs
        computing = [interval for interval in on_device if interval.part != ALL_REDUCE]
        data_waits = [phase for phase in phases if phase.part == DATA_WAIT]
        layers = [*stage_waits, *data_waits, *sums, *computing]
        layers = [Interval(max(start, first_ts), min(end, last_ts), part) for start, end, part in layers]
        layers.insert(0, Interval(first_ts, last_ts, IDLE))
    else:
        loop = [Interval.of(step, _HOST) for step in steps]
        layers = [*loop, *stage_waits, *reversed(phases)]
    ms_by_part = {part: us / 1e3 / len(steps) for part, us in _lengths(layers).items()}
    return {part: ms_by_part[part] for part in sorted(ms_by_part, key=ms_by_part.__getitem__, reverse=True)}


def _end(span: Event) -> float:
    return float(span["ts"] + span["dur"])


def _phase_at(time: float, phases: list[Interval]) -> str:
    return next((phase.part for phase in phases if phase.start <= time < phase.end), _HOST)


def _on_device(kernels: list[Event], host: list[Event], main: int, phases: list[Interval]) -> Iterator[Interval]:
    """Yield a GPU's kernels, as intervals of the phase in which they were launched."""
    asked_by = {span["args"]["External id"]: span for span in host if "External id" in span.get("args", {})}
    for kernel in kernels:
        asked = asked_by.get(kernel.get("args", {}).get("External id"))
        if kernel["name"].startswith("nccl"):
            part = ALL_REDUCE
        elif asked is None:
            part = _HOST
        elif asked["tid"] != main:  # autograd has its own thread on a GPU
            part = BACKWARD
        else:
            part = _phase_at(asked["ts"], phases)
        yield Interval.of(kernel, part)


def _lengths(layers: list[Interval]) -> dict[str, float]:
    """Return the length of each part; each moment belongs to the last interval that contains it."""
    times = np.unique([(interval.start, interval.end) for interval in layers])
    parts = np.full(len(times), "", object)
    for start, end, part in layers:
        first, last = np.searchsorted(times, (start, end))
        parts[first:last] = part
    spent: dict[str, float] = defaultdict(float)
    for part, length in zip(parts[:-1], np.diff(times).tolist(), strict=True):
        if part:
            spent[part] += length
    return spent


def step_table(ms_by_part: dict[str, float], steps: int) -> str:
    """Return a table of the milliseconds of a step by activity, the mean over `steps` steps."""
    step_ms = sum(ms_by_part.values())
    with_sum = ms_by_part | {"one step": step_ms}
    rows = [[part, f"{ms:.2f}", f"{ms / step_ms:.1%}"] for part, ms in with_sum.items()]
    title = f"where the time of a step goes (rank 0, mean of {steps} steps, profiled):"
    return "\n".join([title, *aligned(["part", "ms", ""], rows, left=1)])
