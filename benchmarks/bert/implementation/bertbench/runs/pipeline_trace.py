"""Write the recorded steps of a pipeline into trace.json, with its passes, waits and messages (trace_format.py).

The bubble is the share of a pipeline's time in which its ranks wait for other stages. That time is from the first
stage's first pass in a step to its last pass; no rank is busy outside it. docs/parallelism.md has the definition and
the formula.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from bertbench.common.stage_times import StageTime
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles
from bertbench.runs.trace_format import PASSES, PIPELINE, Event, process_name, span, track_name

_CLOCK_ROUNDS = 5
StageTimes = list[list[StageTime]]
"""What the stages of each rank did."""


def write_pipeline_trace(own: list[StageTime], system: System, world: World, files: ResultFiles | None) -> None:
    """Write what the ranks of the first pipeline recorded; nothing if the run had too few steps. Collective."""
    layout = system.layout
    offset_s = _clock_offset(world)
    moved = []
    for stage_time in own:
        moved.append(stage_time._replace(began=stage_time.began - offset_s, ended=stage_time.ended - offset_s))
    place = layout.coordinate(world.rank)
    of_ranks = world.from_all(moved if (place.data, place.tensor) == (0, 0) else None)
    stage_times = [of_rank for of_rank in of_ranks if of_rank]
    if files is None or len(stage_times) < layout.pipeline:
        return
    with files.open_trace() as trace:
        trace.add(pipeline_events(stage_times, unix_s=time.time() - time.perf_counter()))


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


def pipeline_events(stage_times: StageTimes, unix_s: float) -> Iterator[Event]:
    """Yield the events of one pipeline's recorded steps.

    Each rank has one track for its passes and waits, and one for its messages. `unix_s` is the time at which the clock
    of the times was 0, in seconds since 1970.
    """
    yield process_name(PIPELINE, f"pipeline of {len(stage_times)} ranks")
    for rank, of_rank in enumerate(stage_times):
        yield track_name(PIPELINE, 2 * rank, f"rank {rank}: passes")
        yield track_name(PIPELINE, 2 * rank + 1, f"rank {rank}: messages")
        for stage_time in (*of_rank, *waits(of_rank)):
            is_wait = stage_time.kind == "wait"
            is_message = not is_wait and stage_time.kind not in PASSES
            title = "wait" if is_wait else f"{stage_time.kind} {stage_time.microbatch}, stage {stage_time.stage}"
            yield span(
                PIPELINE,
                2 * rank + 1 if is_message else 2 * rank,
                title,
                unix_s + stage_time.began,
                _arrival(stage_time, stage_times) - stage_time.began,
                kind=stage_time.kind,
                step=stage_time.step,
                stage=stage_time.stage,
                microbatch=stage_time.microbatch,
            )


def _arrival(stage_time: StageTime, stage_times: StageTimes) -> float:
    """Return the end of a pass or a message; for a send, the time when the other rank uses the message."""
    if not stage_time.kind.startswith("send"):
        return stage_time.ended
    direction = stage_time.kind.removeprefix("send ")
    stage = stage_time.stage + (1 if direction == "forward" else -1)
    wanted = (f"receive {direction}", stage_time.step, stage, stage_time.microbatch)
    other = stage_times[stage % len(stage_times)]
    return next((received.ended for received in other if received[:4] == wanted), stage_time.ended)


def waits(of_rank: Sequence[StageTime]) -> Iterator[StageTime]:
    """Yield the waits between a rank's passes in each step; microbatch and stage are those of the next pass."""
    passes = sorted(
        (stage_time for stage_time in of_rank if stage_time.kind in PASSES), key=lambda stage_time: stage_time.began
    )
    for before, after in pairwise(passes):
        if before.step == after.step and after.began > before.ended:
            yield after._replace(kind="wait", began=before.ended, ended=after.began)
