"""Tabulate where the time of a step goes, from a trace of a few steady ones (`train --profile`).

A trace is in Chrome's Trace Event Format, as torch writes it: `ts` and `dur` in microseconds, `cat` cpu_op,
user_annotation (ours, and torch's ProfilerStep#n) or, on a GPU, kernel and gpu_mem*; GPU events carry the `External id`
of the operator that launched them. Each moment of a step counts once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import pairwise
from operator import itemgetter
from typing import Any

from bertbench.common.ranges import ALL_REDUCE, ATTENTION, BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER
from bertbench.report.markup import aligned

_STEP = "ProfilerStep#"
_PHASES = (DATA_WAIT, FORWARD, BACKWARD, ALL_REDUCE, OPTIMIZER)
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "mkldnn::")
_PRODUCT_KERNELS = ("gemm", "xmma", "cutlass", "nvjet")
_ATTENTION_KERNELS = ("flash", "fmha")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_PRODUCT, _OTHER = "matrix products", "LayerNorm and others"
_HOST = "the rest of the loop"
IDLE = "the GPU waits for the host"
Event = dict[str, Any]
Interval = tuple[float, float, int, str]
"""Start, end, priority, part of a step."""


def where(events: Iterable[Event]) -> dict[str, float]:
    """Return the milliseconds of a step by activity, the longest first; they add up to a step.

    With a GPU in the trace the table divides the GPU's time, idle time included.
    """
    spans = [event for event in events if event.get("ph") == "X" and "dur" in event]
    steps = [span for span in spans if span["name"].startswith(_STEP) and span.get("cat") == "user_annotation"]
    nested = list(_nested(span for span in spans if span.get("cat") in ("cpu_op", "user_annotation")))
    on_device = [span for span in spans if span.get("cat") in _ON_DEVICE]
    on_host = (  # on the thread of the steps; the innermost counts
        (span["ts"], span["ts"] + span["dur"], len(names), _part(names))
        for span, names in nested
        if span["tid"] == steps[0]["tid"] and names[0].startswith(_STEP)
    )
    spent = _lengths(_device_intervals(on_device, nested, steps) if on_device else on_host)
    return {name: us / 1e3 / len(steps) for name, us in sorted(spent.items(), key=itemgetter(1), reverse=True)}


def _nested(spans: Iterable[Event]) -> Iterator[tuple[Event, tuple[str, ...]]]:
    """Yield each span of the host, and the names of the spans around it on its thread, outermost first, and its own."""
    around: dict[Any, list[tuple[str, float]]] = defaultdict(list)
    for span in sorted(spans, key=lambda one: (one["ts"], -one["dur"])):
        open_spans = around[span["tid"]]
        while open_spans and span["ts"] >= open_spans[-1][1]:
            open_spans.pop()
        end = min([span["ts"] + span["dur"], *(end for _, end in open_spans[-1:])])  # clocks are cut to nanoseconds
        open_spans.append((span["name"], end))
        yield span, tuple(name for name, _ in open_spans)


def _device_intervals(
    on_device: list[Event], nested: list[tuple[Event, tuple[str, ...]]], steps: list[Event]
) -> Iterator[Interval]:
    """Yield a GPU's kernels; gradient sums count only where nothing else runs, waits for data where it is idle."""
    main = steps[0]["tid"]
    begin, end = min(step["ts"] for step in steps), max(step["ts"] + step["dur"] for step in steps)
    asked_by = {
        span["args"]["External id"]: (span["tid"], names)
        for span, names in nested
        if "External id" in span.get("args", {})
    }
    parts = [(span, 1, DATA_WAIT) for span, _ in nested if span["name"] == DATA_WAIT]
    for span in on_device:
        thread, names = asked_by.get(span.get("args", {}).get("External id"), (main, ()))
        part = _kernel_part(span["name"].lower(), names, thread == main)
        parts.append((span, 2 if part == ALL_REDUCE else 3, part))
    yield begin, end, 0, IDLE
    for span, priority, part in parts:
        yield max(span["ts"], begin), min(span["ts"] + span["dur"], end), priority, part


def _lengths(intervals: Iterable[Interval]) -> dict[str, float]:
    """Return the length of each part; each moment belongs to the interval of the highest priority."""
    spent: dict[str, float] = defaultdict(float)
    waiting = sorted((one for one in intervals if one[0] < one[1]), reverse=True)
    running: list[tuple[int, float, str]] = []
    for now, after in pairwise(sorted({time for start, stop, *_ in waiting for time in (start, stop)})):
        while waiting and waiting[-1][0] <= now:
            _, stop, priority, part = waiting.pop()
            heappush(running, (-priority, stop, part))
        while running and running[0][1] <= now:
            heappop(running)
        if running:
            spent[running[0][2]] += after - now
    return spent


def _part(names: tuple[str, ...]) -> str:
    """Return the part of a step that a host span belongs to, by its name and the spans around it."""
    phase = next((name for name in names if name in _PHASES), _HOST)
    if any(name.startswith(("c10d::", "gloo:")) for name in names) and phase == BACKWARD:
        return ALL_REDUCE
    if phase == FORWARD and ATTENTION in names:
        return f"{FORWARD}: {ATTENTION}"
    if phase in (FORWARD, BACKWARD):
        return f"{phase}: {_PRODUCT if any(name.startswith(_PRODUCTS) for name in names) else _OTHER}"
    return phase


def _kernel_part(kernel: str, names: tuple[str, ...], main_thread: bool) -> str:
    if kernel.startswith("nccl"):
        return ALL_REDUCE
    part = _part(names if main_thread else (BACKWARD, *names))  # autograd has its own thread on a GPU
    phase = part.partition(":")[0]
    if phase == FORWARD and any(sign in kernel for sign in _ATTENTION_KERNELS):
        return f"{FORWARD}: {ATTENTION}"
    if phase in (FORWARD, BACKWARD) and not part.endswith(ATTENTION) and any(s in kernel for s in _PRODUCT_KERNELS):
        return f"{phase}: {_PRODUCT}"
    return part


def step_table(found: dict[str, float], steps: int) -> str:
    """Return the milliseconds of a step by activity, a mean of `steps`, as text."""
    step = sum(found.values())
    rows = [[name, f"{ms:.2f}", f"{ms / step:.1%}"] for name, ms in [*found.items(), ("one step", step)]]
    title = f"where the time of a step goes (rank 0, mean of {steps} steps, profiled):"
    return "\n".join([title, *aligned(["part", "ms", ""], rows, left=1)])
