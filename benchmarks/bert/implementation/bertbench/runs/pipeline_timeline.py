"""Write a pipeline's timeline: pipeline.json for the report's chart, and trace.json for Perfetto (ui.perfetto.dev).

The bubble is the share of a pipeline's time in which its ranks wait for other stages. That time is from the first
stage's first pass in a step to its last pass; no rank is busy outside it. docs/parallelism.md has the definition and
the formula.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from torch import Tensor

from bertbench.common.phases import BACKWARD, FORWARD, PHASES, STAGE_WAIT
from bertbench.common.stage_spans import StageSpan
from bertbench.config import System
from bertbench.config.layout import Layout, bubble_share
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles

PIPELINE_FILE = "pipeline.json"
TRACE_FILE = "trace.json"
_PASSES = ("forward", "backward")
_CLOCK_ROUNDS = 5
_PROCESS = 1_000_000  # the pipeline's process number in a trace, above all real ones
Spans = list[list[StageSpan]]
"""The spans of each rank of the pipeline."""


def bubble_of_phases(ranks_ms: Tensor, layout: Layout) -> float | None:
    """Return the bubble of steps, given their time by phase, [ranks, phases]; None if no pass was timed."""
    by_phase = dict(zip(PHASES, ranks_ms.T, strict=True))
    passes_ms = by_phase[FORWARD] + by_phase[BACKWARD]
    first_stage = [rank for rank in range(layout.ranks) if layout.coordinate(rank).pipeline == 0]
    pipeline_ms = float((passes_ms + by_phase[STAGE_WAIT])[first_stage].mean())
    return 1 - float(passes_ms.mean()) / pipeline_ms if pipeline_ms else None


def bubble_of_spans(spans: Spans) -> float | None:
    """Return the bubble of the recorded steps; None if there are none."""
    total_s = seconds_of_steps(spans)
    busy_s = sum(span.ended - span.began for of_rank in spans for span in of_rank if span.kind in _PASSES)
    return 1 - busy_s / (len(spans) * total_s) if total_s else None


def seconds_of_steps(spans: Spans) -> float:
    """Return the seconds from the first to the last pass of a step, summed over the recorded steps."""
    passes = [span for of_rank in spans for span in of_rank if span.kind in _PASSES]
    total_s = 0.0
    for step in {span.step for span in passes}:
        of_step = [span for span in passes if span.step == step]
        total_s += max(span.ended for span in of_step) - min(span.began for span in of_step)
    return total_s


def write_pipeline_timeline(own: list[StageSpan], system: System, world: World, files: ResultFiles | None) -> None:
    """Write what the ranks of the first pipeline recorded; nothing if the run had too few steps. Collective."""
    layout = system.layout
    offset_s = _clock_offset(world)
    moved = [span._replace(began=span.began - offset_s, ended=span.ended - offset_s) for span in own]
    place = layout.coordinate(world.rank)
    of_ranks = world.from_all(moved if (place.data, place.tensor) == (0, 0) else None)
    spans = [spans for spans in of_ranks if spans]
    if files is None or len(spans) < layout.pipeline:
        return
    timeline = PipelineTimeline(spans, layout, system.parallel.microbatches, time.time() - time.perf_counter())
    files.write(PIPELINE_FILE, timeline.record())
    files.write(TRACE_FILE, {"traceEvents": [*timeline.trace_events()]})


def add_to_trace(trace: Path, folder: Path) -> None:
    """Add the events of a folder's pipeline.json, if it has one, to a trace that torch's profiler wrote."""
    if not (folder / PIPELINE_FILE).exists():
        return
    timeline = PipelineTimeline.of_record(json.loads((folder / PIPELINE_FILE).read_text(encoding="utf-8")))
    content = json.loads(trace.read_text(encoding="utf-8"))
    begin_us = 1e6 * timeline.unix_s - content.get("baseTimeNanoseconds", 0) / 1e3
    content["traceEvents"] += timeline.trace_events(begin_us)
    trace.write_text(json.dumps(content), encoding="utf-8")


def _clock_offset(world: World) -> float:
    """Return by how much this rank's clock is ahead of rank 0's; on one machine, the clock is the same. Collective."""
    if world.ranks.local_size == world.size:
        return 0.0
    offsets = []
    for _ in range(_CLOCK_ROUNDS):
        world.barrier()
        times = world.from_all(time.perf_counter())
        offsets.append(times[world.rank] - times[0])
    return median(offsets)


@dataclass(frozen=True)
class PipelineTimeline:
    """The recorded steps of one pipeline."""

    spans: Spans
    layout: Layout
    microbatches: int
    unix_s: float
    """The time at which the clock of the spans was 0, in seconds since 1970."""

    def record(self) -> dict[str, Any]:
        """Return the content of pipeline.json; times are in milliseconds from the first span."""
        zero = self._zero
        rows = []
        for rank, of_rank in enumerate(self.spans):
            for span in of_rank:
                times_ms = (round(1e3 * (time_s - zero), 4) for time_s in (span.began, span.ended))
                rows.append([rank, span.kind, span.step, span.stage, span.microbatch, *times_ms])
        return {
            "pipeline": self.layout.pipeline,
            "virtual_stages": self.layout.virtual_stages,
            "microbatches": self.microbatches,
            "bubble": bubble_of_spans(self.spans),
            "bubble_of_equal_stages": self.by_formula,
            "began": self.unix_s + zero,
            "columns": ["rank", "kind", "step", "stage", "microbatch", "began_ms", "ended_ms"],
            "spans": rows,
        }

    @classmethod
    def of_record(cls, content: dict[str, Any]) -> "PipelineTimeline":
        """Read the output of `record`."""
        spans: Spans = [[] for _ in range(content["pipeline"])]
        for rank, kind, step, stage, microbatch, began_ms, ended_ms in content["spans"]:
            spans[rank].append(StageSpan(kind, step, stage, microbatch, began_ms / 1e3, ended_ms / 1e3))
        layout = Layout(1, pipeline=content["pipeline"], virtual_stages=content["virtual_stages"])
        return cls(spans, layout, content["microbatches"], content["began"])

    @property
    def by_formula(self) -> float:
        """Return the bubble that equal stages would have."""
        return bubble_share(self.layout.pipeline, self.microbatches, self.layout.virtual_stages)

    @property
    def _zero(self) -> float:
        return min(span.began for of_rank in self.spans for span in of_rank)

    def trace_events(self, begin_us: float = 0.0) -> Iterator[dict[str, Any]]:
        """Yield the events in Chrome's Trace Event Format; the first span begins at `begin_us` microseconds.

        Each rank has one track for its passes and waits, and one for its messages.
        """
        yield _named("process_name", 0, f"pipeline of {self.layout.pipeline} ranks")
        for rank, of_rank in enumerate(self.spans):
            yield _named("thread_name", 2 * rank, f"rank {rank}: passes")
            yield _named("thread_name", 2 * rank + 1, f"rank {rank}: messages")
            for span in (*of_rank, *waits(of_rank)):
                yield self._event(rank, span, begin_us)

    def _event(self, rank: int, span: StageSpan, begin_us: float) -> dict[str, Any]:
        is_message = span.kind not in (*_PASSES, "wait")
        names = {"step": span.step, "stage": span.stage, "microbatch": span.microbatch}
        return {
            "ph": "X",
            "cat": "pipeline",
            "pid": _PROCESS,
            "tid": 2 * rank + 1 if is_message else 2 * rank,
            "name": "wait" if span.kind == "wait" else f"{span.kind} {span.microbatch}, stage {span.stage}",
            "ts": begin_us + 1e6 * (span.began - self._zero),
            "dur": 1e6 * (self._arrival(span) - span.began),
            "args": {"kind": span.kind, **names},
        }

    def _arrival(self, span: StageSpan) -> float:
        """Return the end of a span; for a send, the time when the other rank uses the message."""
        if not span.kind.startswith("send"):
            return span.ended
        direction = span.kind.removeprefix("send ")
        stage = span.stage + (1 if direction == "forward" else -1)
        wanted = (f"receive {direction}", span.step, stage, span.microbatch)
        other = self.spans[stage % self.layout.pipeline]
        return next((received.ended for received in other if received[:4] == wanted), span.ended)


def waits(of_rank: Sequence[StageSpan]) -> Iterator[StageSpan]:
    """Yield the waits between a rank's passes in each step; microbatch and stage are those of the next pass."""
    passes = sorted((span for span in of_rank if span.kind in _PASSES), key=lambda span: span.began)
    for before, after in pairwise(passes):
        if before.step == after.step and after.began > before.ended:
            yield after._replace(kind="wait", began=before.ended, ended=after.began)


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": track, "args": {"name": name}}
