"""Tabulate where the time of a step goes, from a trace of a few steady ones (`train --profile`).

A trace is in Chrome's Trace Event Format, as torch writes it: `ts` and `dur` in microseconds, `cat` cpu_op,
user_annotation (ours, and torch's ProfilerStep#n) or, on a GPU, kernel and gpu_mem*; GPU events carry the `External id`
of the operator that launched them. Each moment of a step counts once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bertbench.common.ranges import ALL_REDUCE, ATTENTION, BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER

_STEP = "ProfilerStep#"
_PHASES = (DATA_WAIT, FORWARD, BACKWARD, ALL_REDUCE, OPTIMIZER)
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "mkldnn::")
_PRODUCT_KERNELS = ("gemm", "xmma", "cutlass", "nvjet")
_ATTENTION_KERNELS = ("flash", "fmha")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_PRODUCT, _OTHER = "matrix products", "LayerNorm and others"
_HOST = "the rest of the loop"
IDLE = "the GPU waits for the host"
_ORDER = (
    DATA_WAIT, f"{FORWARD}: {ATTENTION}", f"{FORWARD}: {_PRODUCT}", f"{FORWARD}: {_OTHER}",
    f"{BACKWARD}: {_PRODUCT}", f"{BACKWARD}: {_OTHER}", ALL_REDUCE, OPTIMIZER, _HOST, IDLE,
)  # fmt: skip
Interval = tuple[float, float]
Event = dict[str, Any]
Spent = dict[str, float]


def where(events: Iterable[Event]) -> dict[str, float]:
    """Return the milliseconds of a step by activity; they add up to a step.

    With a GPU in the trace the table divides the GPU's time, idle time included.
    """
    spans = [event for event in events if event.get("ph") == "X" and "dur" in event]
    steps = [span for span in spans if span["name"].startswith(_STEP) and span.get("cat") == "user_annotation"]
    placed = list(_placed(span for span in spans if span.get("cat") in ("cpu_op", "user_annotation")))
    on_device = [span for span in spans if span.get("cat") in _ON_DEVICE]
    spent = _device_time(on_device, placed, steps) if on_device else _host_time(placed, steps)
    return {name: spent[name] / 1e3 / len(steps) for name in _ORDER if spent.get(name)}


class _Placed(NamedTuple):
    """A span of the host, the spans around it on its thread (outermost first), and its time outside inner spans."""

    span: Event
    around: tuple[str, ...]
    own: float


def _placed(spans: Iterable[Event]) -> Iterator[_Placed]:
    threads: dict[Any, list[Event]] = defaultdict(list)
    for span in spans:
        threads[span["tid"]].append(span)
    for thread in threads.values():
        open_spans: list[tuple[Event, float, list[Interval]]] = []
        for span in sorted(thread, key=lambda one: (one["ts"], -one["dur"])):
            while open_spans and span["ts"] >= open_spans[-1][1]:
                yield _closed(open_spans)
            end = span["ts"] + span["dur"]
            if open_spans:
                end = min(end, open_spans[-1][1])  # clocks are cut to nanoseconds: a child may seem to end later
                open_spans[-1][2].append((span["ts"], end))
            open_spans.append((span, end, []))
        while open_spans:
            yield _closed(open_spans)


def _closed(open_spans: list[tuple[Event, float, list[Interval]]]) -> _Placed:
    span, end, inside = open_spans.pop()
    around = tuple(one["name"] for one, _, _ in open_spans)
    return _Placed(span, around, end - span["ts"] - _length(inside))


def _host_time(placed: list[_Placed], steps: list[Event]) -> Spent:
    """Add up the own time of each span in a step on a CPU, on the thread of the steps."""
    spent: Spent = defaultdict(float)
    main = steps[0]["tid"]
    for one in placed:
        names = (*one.around, one.span["name"])
        if one.span["tid"] != main or not names[0].startswith(_STEP):
            continue
        spent[_part(names)] += one.own
    return spent


def _device_time(on_device: list[Event], placed: list[_Placed], steps: list[Event]) -> Spent:
    """Add up each kernel's time on a GPU, gradient sums only where nothing else runs, and the idle time."""
    asked_by = {one.span["args"]["External id"]: one for one in placed if "External id" in one.span.get("args", {})}
    at, end = min(step["ts"] for step in steps), max(step["ts"] + step["dur"] for step in steps)
    spent: Spent = defaultdict(float)
    free: list[Interval] = []
    sums: list[Interval] = []
    for span in sorted(on_device, key=lambda one: one["ts"]):
        asker = asked_by.get(span.get("args", {}).get("External id"))
        names = (*asker.around, asker.span["name"]) if asker else ()
        main = asker is None or asker.span["tid"] == steps[0]["tid"]
        part = _kernel_part(span["name"].lower(), names, main)
        start, stop = min(span["ts"], end), min(span["ts"] + span["dur"], end)
        if part == ALL_REDUCE:
            sums.append((start, stop))
            continue
        if start > at:
            free.append((at, start))
        spent[part] += max(0.0, stop - max(start, at))
        at = max(at, stop)
    free.append((at, end))
    waits = [(o.span["ts"], o.span["ts"] + o.span["dur"]) for o in placed if o.span["name"] == DATA_WAIT]
    for part, taken in ((ALL_REDUCE, sums), (DATA_WAIT, waits)):
        left = _without(free, taken)
        spent[part] += _length(free) - _length(left)
        free = left
    spent[IDLE] = _length(free)
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
    part = _part(names) if main_thread else _part((BACKWARD, *names))  # autograd has its own thread on a GPU
    phase = part.partition(":")[0]
    if phase == FORWARD and any(sign in kernel for sign in _ATTENTION_KERNELS):
        return f"{FORWARD}: {ATTENTION}"
    if phase in (FORWARD, BACKWARD) and not part.endswith(ATTENTION) and any(s in kernel for s in _PRODUCT_KERNELS):
        return f"{phase}: {_PRODUCT}"
    return part


def _without(intervals: list[Interval], taken: list[Interval]) -> list[Interval]:
    """Return the parts of disjoint intervals that the others don't cover."""
    for begin, end in taken:
        intervals = [
            piece
            for start, stop in intervals
            for piece in ((start, min(stop, begin)), (max(start, end), stop))
            if piece[0] < piece[1]
        ]
    return intervals


def _length(intervals: list[Interval]) -> float:
    return sum(stop - start for start, stop in intervals)


def step_table(found: dict[str, float], evaluation: dict[str, Any], steps: int) -> str:
    """Return the milliseconds of a step by activity, a mean of `steps`, and evaluations' share, as text."""
    step = sum(found.values())
    width = max(map(len, [*found, "one step"]))
    rows = [f"  {name:<{width}}  {ms:9.2f} ms  {ms / step:6.1%}" for name, ms in found.items()]
    return "\n".join(
        [
            f"where the time of a step goes (rank 0, mean of {steps} steps, profiled):",
            *rows,
            f"  {'one step':<{width}}  {step:9.2f} ms",
            f"an evaluation takes {evaluation['seconds']:.2f} s every {evaluation['every_steps']:,} steps: "
            f"{evaluation['share']:.1%} of a run",
        ]
    )
