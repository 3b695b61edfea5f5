"""Write the recorded steps of a pipeline into trace.json, with its passes, waits and messages (trace_format.py).

The bubble is the share of a pipeline's time in which its ranks wait for other stages. That time is from the first
stage's first pass in a step to its last pass; no rank is busy outside it. docs/parallelism.md has the definition and
the formula.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from bertbench.common.stage_spans import StageSpan
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles
from bertbench.runs.trace_format import PASSES, PIPELINE, Event, process_name, span, track_name

_CLOCK_ROUNDS = 5
Spans = list[list[StageSpan]]
"""The spans of each rank of the pipeline."""


def bubble_of_spans(spans: Spans) -> float | None:
    """Return the bubble of the recorded steps; None if there are none."""
    total_s = seconds_of_steps(spans)
    busy_s = sum(stage_span.ended - stage_span.began for stage_span in _passes(spans))
    return 1 - busy_s / (len(spans) * total_s) if total_s else None


def seconds_of_steps(spans: Spans) -> float:
    """Return the seconds from the first to the last pass of a step, summed over the recorded steps."""
    passes = _passes(spans)
    total_s = 0.0
    for step in {stage_span.step for stage_span in passes}:
        of_step = [stage_span for stage_span in passes if stage_span.step == step]
        total_s += max(stage_span.ended for stage_span in of_step) - min(stage_span.began for stage_span in of_step)
    return total_s


def _passes(spans: Spans) -> list[StageSpan]:
    return [stage_span for of_rank in spans for stage_span in of_rank if stage_span.kind in PASSES]


def write_pipeline_trace(own: list[StageSpan], system: System, world: World, files: ResultFiles | None) -> None:
    """Write what the ranks of the first pipeline recorded; nothing if the run had too few steps. Collective."""
    layout = system.layout
    offset_s = _clock_offset(world)
    moved = []
    for stage_span in own:
        moved.append(stage_span._replace(began=stage_span.began - offset_s, ended=stage_span.ended - offset_s))
    place = layout.coordinate(world.rank)
    of_ranks = world.from_all(moved if (place.data, place.tensor) == (0, 0) else None)
    spans = [spans for spans in of_ranks if spans]
    if files is None or len(spans) < layout.pipeline:
        return
    with files.open_trace() as trace:
        trace.add(pipeline_events(spans, unix_s=time.time() - time.perf_counter()))


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


def pipeline_events(spans: Spans, unix_s: float) -> Iterator[Event]:
    """Yield the events of one pipeline's recorded steps.

    Each rank has one track for its passes and waits, and one for its messages. `unix_s` is the time at which the clock
    of the spans was 0, in seconds since 1970.
    """
    yield process_name(PIPELINE, f"pipeline of {len(spans)} ranks")
    for rank, of_rank in enumerate(spans):
        yield track_name(PIPELINE, 2 * rank, f"rank {rank}: passes")
        yield track_name(PIPELINE, 2 * rank + 1, f"rank {rank}: messages")
        for stage_span in (*of_rank, *waits(of_rank)):
            is_wait = stage_span.kind == "wait"
            is_message = not is_wait and stage_span.kind not in PASSES
            title = "wait" if is_wait else f"{stage_span.kind} {stage_span.microbatch}, stage {stage_span.stage}"
            yield span(
                PIPELINE,
                2 * rank + 1 if is_message else 2 * rank,
                title,
                unix_s + stage_span.began,
                _arrival(stage_span, spans) - stage_span.began,
                kind=stage_span.kind,
                step=stage_span.step,
                stage=stage_span.stage,
                microbatch=stage_span.microbatch,
            )


def _arrival(stage_span: StageSpan, spans: Spans) -> float:
    """Return the end of a span; for a send, the time when the other rank uses the message."""
    if not stage_span.kind.startswith("send"):
        return stage_span.ended
    direction = stage_span.kind.removeprefix("send ")
    stage = stage_span.stage + (1 if direction == "forward" else -1)
    wanted = (f"receive {direction}", stage_span.step, stage, stage_span.microbatch)
    other = spans[stage % len(spans)]
    return next((received.ended for received in other if received[:4] == wanted), stage_span.ended)


def waits(of_rank: Sequence[StageSpan]) -> Iterator[StageSpan]:
    """Yield the waits between a rank's passes in each step; microbatch and stage are those of the next pass."""
    passes = sorted((span for span in of_rank if span.kind in PASSES), key=lambda span: span.began)
    for before, after in pairwise(passes):
        if before.step == after.step and after.began > before.ended:
            yield after._replace(kind="wait", began=before.ended, ended=after.began)
