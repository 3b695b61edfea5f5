"""`train --profile`: profile a few steady steps by torch, write the trace, and tabulate where their time goes.

A trace is in Chrome's Trace Event Format, as torch writes it: `ts` and `dur` in microseconds, `cat` cpu_op,
user_annotation (ours, and torch's ProfilerStep#n) or, on a GPU, kernel and gpu_mem*; GPU events carry the `External id`
of the operator that launched them. Each moment of a step counts once.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from bertbench.common.ranges import ALL_REDUCE, ATTENTION, BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER
from bertbench.distributed.world import World

_WAIT, _WARM_UP, _ACTIVE = 5, 2, 5
PROFILED_STEPS = _WAIT + _WARM_UP + _ACTIVE
_OPERATORS = 20  # rows of the table of single operators
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


class Profiler:
    """Profile steps PROFILED_STEPS - 5 to the last on every rank; if off, do nothing."""

    def __init__(self, world: World, on: bool) -> None:
        if on:
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's tracer prints four lines a rank otherwise
        self._cuda = world.device.type == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])]
        phases = schedule(wait=_WAIT, warmup=_WARM_UP, active=_ACTIVE, repeat=1)
        self._profile = profile(activities=activities, schedule=phases, acc_events=True) if on else None
        self._steps = 0

    def step(self) -> None:
        """Mark the end of a step."""
        if self._profile is None:
            return
        self._steps += 1
        if self._cuda and self._steps in (_WAIT + _WARM_UP, PROFILED_STEPS):
            torch.cuda.synchronize()  # keep other steps' device work out of the counted ones
        self._profile.step()

    def write(self, folder: Path, steps_between_evaluations: int, evaluation_s: float) -> str:
        """Write trace.json, profile.json and profile.txt into a folder; return the table."""
        assert self._profile is not None
        trace = folder / "trace.json"
        self._profile.export_chrome_trace(str(trace))
        found = where(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"])
        step_ms = sum(found.values())
        share = evaluation_s / (evaluation_s + steps_between_evaluations * step_ms / 1e3)
        evaluation = {"seconds": evaluation_s, "every_steps": steps_between_evaluations, "share": share}
        content = {"steps": _ACTIVE, "step_ms": step_ms, "parts_ms": found, "evaluation": evaluation}
        (folder / "profile.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        table = _table(found, evaluation)
        key = "self_device_time_total" if self._cuda else "self_cpu_time_total"
        operators = self._profile.key_averages().table(sort_by=key, row_limit=_OPERATORS)
        (folder / "profile.txt").write_text(f"{table}\n\n{operators}", encoding="utf-8")
        return table

    def __enter__(self) -> Self:
        if self._profile is not None:
            self._profile.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._profile is not None:
            self._profile.stop()


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
    last_inside: float
    """End of the last span inside it; its own start if there is none."""


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
    last_inside = max((stop for _, stop in inside), default=span["ts"])
    return _Placed(span, around, end - span["ts"] - _length(inside), last_inside)


def _host_time(placed: list[_Placed], steps: list[Event]) -> Spent:
    """Add up the own time of each span in a step on a CPU, on the thread of the steps."""
    spent: Spent = defaultdict(float)
    main = steps[0]["tid"]
    for one in placed:
        names = (*one.around, one.span["name"])
        if one.span["tid"] != main or not names[0].startswith(_STEP):
            continue
        own = one.own
        if one.span["name"] == BACKWARD:  # after its last operator, DDP waits for the buckets' sums
            waited = one.span["ts"] + one.span["dur"] - one.last_inside
            spent[ALL_REDUCE] += waited
            own -= waited
        spent[_part(names)] += own
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


def _table(found: dict[str, float], evaluation: dict[str, Any]) -> str:
    step = sum(found.values())
    width = max(map(len, [*found, "one step"]))
    rows = [f"  {name:<{width}}  {ms:9.2f} ms  {ms / step:6.1%}" for name, ms in found.items()]
    return "\n".join(
        [
            f"where the time of a step goes (rank 0, mean of {_ACTIVE} steps, profiled):",
            *rows,
            f"  {'one step':<{width}}  {step:9.2f} ms",
            f"an evaluation takes {evaluation['seconds']:.2f} s every {evaluation['every_steps']:,} steps: "
            f"{evaluation['share']:.1%} of a run",
        ]
    )
