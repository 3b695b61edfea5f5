"""`lab overlap` on GPUs: measure exposed communication in torch.profiler's traces of real steps, one rank a GPU.

Communication is exposed while a GPU runs an NCCL kernel and nothing else. The links run at full speed. Tested on
hand-made traces; it hasn't run on a machine with several GPUs.
"""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bertbench.common.progress import Progress
from bertbench.config.optimizer import ClipMode
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.model.arithmetic import set_arithmetic
from bertbench.model.sizes import SHAPES
from lab.bench.clipped_step import MODES, ClippedStep
from lab.bench.harness import Found, table

Interval = tuple[float, float]
_COLUMNS = {
    "clip": "{0.mode}", "step ms": "{0.step_ms:,.1f}", "communication ms": "{0.communication_ms:,.1f}",
    "exposed ms": "{0.exposed_ms:,.1f}", "hidden": "{0.hidden:.0%}",
}  # fmt: skip
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


def measure_traces(steps: int, batch: int) -> Found:
    """Trace `steps` steps of every mode on all GPUs of this machine, with `batch` samples of 512 tokens on each."""
    rows = on_ranks(torch.cuda.device_count(), _on_rank, steps, batch, device="cuda")
    head = f"BERT-Large in bf16 on {torch.cuda.device_count()} {torch.cuda.get_device_name()} GPUs"
    return Found(rows, [head, *table(rows, _COLUMNS)])


def exposed(events: Iterable[dict[str, Any]]) -> tuple[float, float]:
    """Return milliseconds of communication, and of its exposed part, in one GPU's trace (Chrome's format, in µs)."""
    kernels: dict[bool, list[Interval]] = {True: [], False: []}
    for event in events:
        if event.get("cat") == "kernel":
            kernels["nccl" in event["name"].lower()].append((event["ts"], event["ts"] + event["dur"]))
    return _length(kernels[True]), _length(kernels[True] + kernels[False]) - _length(kernels[False])


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of the intervals as disjoint intervals, in order."""
    apart: list[Interval] = []
    for start, end in sorted(intervals):
        if apart and start <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(apart[-1][1], end))
        else:
            apart.append((start, end))
    return apart


def _length(intervals: Iterable[Interval]) -> float:
    """Return the length of a union, in ms."""
    return sum(end - start for start, end in merged(intervals)) / 1e3


def _on_rank(world: World, steps: int, size: int) -> list[Traced]:
    shape, progress = SHAPES["large"], Progress(enabled=world.leads)
    generator = torch.Generator().manual_seed(world.rank)
    batch = synthetic(size, shape.max_positions, shape.vocab_size, generator).to(world.device)
    rows = []
    for mode in MODES:
        progress.message(f"clip {mode}: {steps} steps of BERT-Large on {world.size} GPUs")
        arm = ClippedStep(mode, world.size, shape, world.device, precision="bf16", bucket_mb=None)
        set_arithmetic(arm.model, world.device, "bf16", None)
        for _ in range(_WARM_UP):
            arm.take(batch)
        torch.cuda.synchronize(world.device)
        world.barrier()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                arm.take(batch)
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
    kernels = [event for event in events if event.get("cat") == "kernel"]
    began, ended = min(event["ts"] for event in kernels), max(event["ts"] + event["dur"] for event in kernels)
    hidden = 1 - exposed_ms / communication_ms if communication_ms else 1.0
    return Traced(
        mode,
        gpus,
        round((ended - began) / 1e3 / steps, 2),
        round(communication_ms / steps, 2),
        round(exposed_ms / steps, 2),
        round(hidden, 3),
    )
