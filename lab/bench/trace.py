"""`lab overlap` on GPUs: measure exposed communication in torch.profiler's traces of real steps, one rank a GPU.

Communication is exposed while a GPU runs an NCCL kernel and nothing else. The links run at full speed. Tested on
hand-made traces; it hasn't run on a machine with several GPUs.
"""

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bertbench.common.progress import Progress
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.model.arithmetic import set_arithmetic
from bertbench.model.sizes import SHAPES
from bertbench.optim.options import ClipMode
from lab.bench.overlap import MODES, Arm

Interval = tuple[float, float]
_WARM_UP = 5  # torch.compile and the allocator need them


@dataclass(frozen=True)
class Traced:
    """A step of BERT-Large in bf16 with one clip mode on rank 0's GPU; means of the traced steps."""

    mode: ClipMode
    gpus: int
    step_ms: float
    communication_ms: float
    """Time in which NCCL kernels run."""
    exposed_ms: float
    """Part of that time in which no other kernel runs."""
    hidden: float


def measure_traces(steps: int, batch: int) -> list[Traced]:
    """Trace `steps` steps of every mode on all GPUs of this machine, with `batch` samples of 512 tokens on each."""
    traced: list[Traced] = on_ranks(torch.cuda.device_count(), _on_rank, steps, batch, device="cuda")
    return traced


def exposed(events: Iterable[dict[str, Any]]) -> tuple[float, float]:
    """Return milliseconds of communication, and of its exposed part, in one GPU's trace (Chrome's format, in µs)."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    communication = merged(_interval(kernel) for kernel in kernels if "nccl" in kernel["name"].lower())
    computation = merged(_interval(kernel) for kernel in kernels if "nccl" not in kernel["name"].lower())
    total = sum(end - start for start, end in communication)
    return total / 1e3, (total - _common(communication, computation)) / 1e3


def _interval(event: dict[str, Any]) -> Interval:
    return event["ts"], event["ts"] + event["dur"]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of the intervals as disjoint intervals, in order."""
    apart: list[Interval] = []
    for start, end in sorted(intervals):
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((start, end))
    return apart


def _common(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """Return the length of the intersection of two merged lists."""
    common, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        common += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common


def _on_rank(world: World, steps: int, size: int) -> list[Traced]:
    shape, progress = SHAPES["large"], Progress(enabled=world.leads)
    generator = torch.Generator().manual_seed(world.rank)
    batch = synthetic(size, shape.max_positions, shape.vocab_size, generator).to(world.device)
    rows = []
    for mode in MODES:
        progress.message(f"clip {mode}: {steps} steps of BERT-Large on {world.size} GPUs")
        arm = Arm(mode, world.size, shape, world.device, precision="bf16", bucket_mb=None)
        set_arithmetic(arm.model, world.device, "bf16", None)
        for _ in range(_WARM_UP):
            arm.step(batch)
        torch.cuda.synchronize(world.device)
        world.barrier()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                arm.step(batch)
            torch.cuda.synchronize(world.device)
        rows.append(_row(mode, world.size, steps, events_of(profiler)))
    return rows


def events_of(profiler: profile) -> list[dict[str, Any]]:
    """Return a profiler's events in Chrome's format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
        return events


def _row(mode: ClipMode, gpus: int, steps: int, events: list[dict[str, Any]]) -> Traced:
    communication_ms, exposed_ms = exposed(events)
    kernels = merged(_interval(event) for event in events if event.get("cat") == "kernel")
    step_ms = (kernels[-1][1] - kernels[0][0]) / 1e3 / steps
    hidden = 1 - exposed_ms / communication_ms if communication_ms else 1.0
    return Traced(
        mode,
        gpus,
        round(step_ms, 2),
        round(communication_ms / steps, 2),
        round(exposed_ms / steps, 2),
        round(hidden, 3),
    )
