"""Sum the time of kernels in profiled steps, by name, and the time in which no kernel ran.

torch writes traces in Chrome's Trace Event Format: `ts` and `dur` are in microseconds; `cat` is kernel or gpu_mem* for
work of a GPU, and cpu_op for operators on a CPU, which are nested.
"""

from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from lab.bench.gpu.testbed import Row

_ON_A_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_ON_A_CPU = ("cpu_op",)
_LISTED = 60
_NAME = 160  # characters; the names of templates are longer


def kernel_sums(events: Iterable[dict[str, Any]], device: str, steps: int) -> Row:
    """Return milliseconds per step: for the kernels of each name (the longest first), for all kernels, and idle."""
    kinds = _ON_A_GPU if device == "cuda" else _ON_A_CPU
    spans = [event for event in events if event.get("ph") == "X" and event.get("cat") in kinds]
    spans.sort(key=itemgetter("ts"))
    ms_by_name: dict[str, float] = defaultdict(float)
    launches: dict[str, int] = defaultdict(int)
    for span in spans:
        name = span["name"][:_NAME]
        ms_by_name[name] += span["dur"] / 1e3 / steps
        launches[name] += 1
    ranked = sorted(ms_by_name.items(), key=itemgetter(1), reverse=True)
    kernels = [
        {"name": name, "launches": round(launches[name] / steps, 2), "ms": round(ms, 4)}
        for name, ms in ranked[:_LISTED]
    ]
    return {
        "kernels": kernels,
        "other_kernels_ms": round(sum(ms for _, ms in ranked[_LISTED:]), 4),
        "all_kernels_ms": round(sum(ms_by_name.values()), 4),
        "idle_ms": round(_idle_us(spans) / 1e3 / steps, 4),
    }


def _idle_us(spans: list[dict[str, Any]]) -> float:
    """Return the time in which none of the spans ran; they are in the order of their starts."""
    idle = 0.0
    busy_until: float | None = None
    for span in spans:
        if busy_until is None:
            busy_until = span["ts"]
        idle += max(0.0, span["ts"] - busy_until)
        busy_until = max(busy_until, span["ts"] + span["dur"])
    return idle
