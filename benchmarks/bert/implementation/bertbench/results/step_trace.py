"""Tabulate where the time of a step goes, from a trace of a few steady ones (`train --profile`).

A trace is in Chrome's Trace Event Format, as torch writes it: `ts` and `dur` in microseconds, `cat` cpu_op,
user_annotation (ours, and torch's ProfilerStep#n) or, on a GPU, kernel and gpu_mem*; GPU events carry the `External id`
of the operator that launched them. Each moment of a step counts once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np

from bertbench.common.markup import aligned
from bertbench.common.phase_clock import ALL_REDUCE, BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, REPLAY, STAGE_WAIT

_STEP = "ProfilerStep#"
_PHASES = (DATA_WAIT, FORWARD, BACKWARD, ALL_REDUCE, OPTIMIZER, REPLAY)
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST = "the rest of the loop"
IDLE = "the GPU waits for the host"
Event = dict[str, Any]
Interval = tuple[float, float, str]
"""Start, end, part of a step."""


def where(events: Iterable[Event]) -> dict[str, float]:
    """Return the milliseconds of a step by phase, the longest first; they add up to a step.

    With a GPU in the trace the table divides the GPU's time, idle time included.
    """
    spans = [event for event in events if event.get("ph") == "X" and "dur" in event]
    host = [span for span in spans if span.get("cat") in ("cpu_op", "user_annotation")]
    steps = [span for span in host if span["name"].startswith(_STEP)]
    main = steps[0]["tid"]
    ours = [(span["ts"], _end(span), span["name"]) for span in host if span["tid"] == main]
    phases = [interval for interval in ours if interval[2] in _PHASES]
    phases.sort(key=lambda interval: (interval[0], -interval[1]))  # outer ones first
    stage_waits = [interval for interval in ours if interval[2] == STAGE_WAIT]  # the passes lie within
    kernels = [span for span in spans if span.get("cat") in _ON_DEVICE]
    if kernels:
        begin = min(step["ts"] for step in steps)
        end = max(map(_end, steps))
        on_device = list(_on_device(kernels, host, main, phases))
        sums = [interval for interval in on_device if interval[2] == ALL_REDUCE]  # count only where nothing else runs
        computing = [interval for interval in on_device if interval[2] != ALL_REDUCE]
        waits = [phase for phase in phases if phase[2] == DATA_WAIT]
        layers = [(begin, end, IDLE), *stage_waits, *waits, *sums, *computing]
        layers = [(max(start, begin), min(stop, end), part) for start, stop, part in layers]
    else:
        layers = [*((step["ts"], _end(step), _HOST) for step in steps), *stage_waits, *reversed(phases)]
    spent = _lengths(layers)
    return {name: us / 1e3 / len(steps) for name, us in sorted(spent.items(), key=itemgetter(1), reverse=True)}


def _end(span: Event) -> float:
    return float(span["ts"] + span["dur"])


def _phase_at(time: float, phases: list[Interval]) -> str:
    return next((part for start, stop, part in phases if start <= time < stop), _HOST)


def _on_device(kernels: list[Event], host: list[Event], main: int, phases: list[Interval]) -> Iterator[Interval]:
    """Yield a GPU's kernels, in the phase whose operator launched them."""
    asked_by = {span["args"]["External id"]: span for span in host if "External id" in span.get("args", {})}
    for kernel in kernels:
        asked = asked_by.get(kernel.get("args", {}).get("External id"))
        part = _phase_at(asked["ts"], phases) if asked else _HOST
        if asked and asked["tid"] != main:  # autograd has its own thread on a GPU
            part = BACKWARD
        yield kernel["ts"], _end(kernel), ALL_REDUCE if kernel["name"].startswith("nccl") else part


def _lengths(layers: list[Interval]) -> dict[str, float]:
    """Return the length of each part; each moment belongs to the last interval that has it."""
    times = np.unique([time for start, stop, _ in layers for time in (start, stop)])
    parts = np.full(len(times), "", object)
    for start, stop, part in layers:
        first, last = np.searchsorted(times, (start, stop))
        parts[first:last] = part
    spent: dict[str, float] = defaultdict(float)
    for part, length in zip(parts[:-1], np.diff(times).tolist(), strict=True):
        if part:
            spent[part] += length
    return spent


def step_table(found: dict[str, float], steps: int) -> str:
    """Return the milliseconds of a step by activity, a mean of `steps`, as text."""
    step = sum(found.values())
    rows = [[name, f"{ms:.2f}", f"{ms / step:.1%}"] for name, ms in [*found.items(), ("one step", step)]]
    title = f"where the time of a step goes (rank 0, mean of {steps} steps, profiled):"
    return "\n".join([title, *aligned(["part", "ms", ""], rows, left=1)])
