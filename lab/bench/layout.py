"""`lab layout`: measure pipelines' idle time and every dimension's bytes beside the formulas.

A pipeline's ranks take real steps, and every forward and backward pass of a stage is timed in processor time, which
ignores other use of the cores. From these times and each rank's order of work, the step is replayed as if every rank
had its own core and sending took no time: this gives the bubble of the schedule with the real, unequal stages. The
clock's bubble is meaningful only with a core for each rank.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed.pipelining import PipelineStage

from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.parallel import theory
from bertbench.parallel.counting import Traffic, expected
from bertbench.parallel.pipeline import Pipeline
from bertbench.training.layout_trainer import LayoutTrainer

_SYSTEM = "cpu_parallel"
_TOKENS, _SEQUENCES = 128, 4
# 8 layers cut into 4 x 2 stages; beside them the vocabulary costs little
_SHAPE = ("model.hidden_size=256", "model.layers=8", "model.feed_forward_size=1024")
_SCHEDULES = (("gpipe", 1), ("1f1b", 1), ("interleaved", 2))
_FACTORS = (1, 2, 4)  # microbatches, in pipeline sizes
_RANKS = 4
_LAYOUTS = {
    "4 x 1 x 1, fully sharded": ("parallel.tensor=1", "parallel.pipeline=1", "parallel.microbatches=1",
                                 "parallel.fully_shard=true"),
    "2 x 2 x 1": ("parallel.tensor=2", "parallel.pipeline=1", "parallel.microbatches=1"),
    "2 x 2 x 1, sequence": ("parallel.tensor=2", "parallel.sequence=true", "parallel.pipeline=1",
                            "parallel.microbatches=1"),
    "2 x 1 x 2": ("parallel.tensor=1", "parallel.pipeline=2"),
    "1 x 2 x 2": ("parallel.tensor=2", "parallel.pipeline=2"),
    "1 x 2 x 2, sequence": ("parallel.tensor=2", "parallel.sequence=true", "parallel.pipeline=2"),
    "1 x 2 x 2, recomputed": ("parallel.tensor=2", "parallel.pipeline=2", "parallel.recompute=true"),
    "1 x 1 x 4": ("parallel.tensor=1", "parallel.pipeline=4"),
}  # fmt: skip


class Action(NamedTuple):
    """A forward or backward pass of one stage with one microbatch."""

    backward: bool
    stage: int
    microbatch: int


Timed = tuple[Action, float]


@dataclass(frozen=True)
class Bubble:
    """Idle over busy time of one schedule: medians of all steps."""

    schedule: str
    pipeline: int
    virtual_stages: int
    microbatches: int
    formula: float
    """(p - 1) / (v m)"""
    replayed: float
    """From processor times, as if every rank had its own core."""
    clock: float | None
    """From the clock; None with fewer cores than ranks."""


@dataclass(frozen=True)
class Sent:
    """Bytes that one rank sends in a step in one dimension."""

    layout: str
    rank: int
    dimension: str
    counted: int
    formula: int


def measure_bubbles(steps: int) -> list[Bubble]:
    """Take `steps` steps of every schedule on pipelines of 2 and 4 gloo ranks."""
    rows = []
    for pipeline in (2, 4):
        rows += on_ranks(pipeline, _bubbles, pipeline, steps)
    return rows


def measure_bytes() -> list[Sent]:
    """Count the bytes of one step of each layout on 4 gloo ranks, for rank 0 and the last rank."""
    rows: list[Sent] = on_ranks(_RANKS, _bytes)
    return rows


def replay(orders: Sequence[Sequence[Timed]], stages: int) -> float:
    """Return a step's seconds if ranks work in these orders and each action starts once its inputs are ready."""
    ended: dict[Action, float] = {}
    clocks, waiting = [0.0] * len(orders), [list(order) for order in orders]
    while any(waiting):
        before = len(ended)
        for rank, order in enumerate(waiting):
            while order and (needs := _needs(order[0][0], stages)) <= ended.keys():
                action, seconds = order.pop(0)
                clocks[rank] = max([clocks[rank], *(ended[need] for need in needs)]) + seconds
                ended[action] = clocks[rank]
        assert len(ended) > before, "the orders fit no schedule"
    return max(clocks)


def _needs(action: Action, stages: int) -> set[Action]:
    backward, stage, microbatch = action
    if not backward:
        return {Action(False, stage - 1, microbatch)} if stage else set()
    last = stage == stages - 1
    return {Action(False, stage, microbatch) if last else Action(True, stage + 1, microbatch)}


def _bubbles(world: World, pipeline: int, steps: int) -> list[Bubble]:
    progress = Progress(enabled=world.leads)
    rows = []
    for schedule, virtual_stages in _SCHEDULES:
        for microbatches in (factor * pipeline for factor in _FACTORS):
            system = load_system(
                _SYSTEM,
                [
                    *_SHAPE, f"launch.ranks_per_node={pipeline}", "parallel.tensor=1", f"parallel.pipeline={pipeline}",
                    f"parallel.schedule={schedule}", f"parallel.virtual_stages={virtual_stages}",
                    f"parallel.microbatches={microbatches}",
                ],
            )  # fmt: skip
            progress.message(
                f"{schedule}: {pipeline} ranks, {virtual_stages} stages on each, {microbatches} microbatches"
            )
            trainer = LayoutTrainer(system, world, 1, _TOKENS)
            assert trainer.pipeline is not None
            replayed, clock = _idle(world, trainer.pipeline, _parts(system), steps)
            rows.append(
                Bubble(
                    schedule, pipeline, virtual_stages, microbatches,
                    theory.bubble(pipeline, microbatches, virtual_stages), round(replayed, 4),
                    round(clock, 4) if available_cores() >= pipeline else None,
                )
            )  # fmt: skip
    return rows


def _idle(world: World, pipeline: Pipeline, parts: list[LoadedPart], steps: int) -> tuple[float, float]:
    """Return median idle over busy time, of the replayed step and by the clock."""
    recorded: list[Timed] = []
    for stage in pipeline.staged:
        _record(stage, recorded)
    replayed, clock = [], []
    for _ in range(steps):
        recorded.clear()
        world.barrier()
        began = time.perf_counter()
        pipeline.run(parts)
        taken = time.perf_counter() - began
        orders: list[list[Timed]] = [[]] * world.size
        torch.distributed.all_gather_object(orders, recorded)
        busy = statistics.mean(sum(seconds for _, seconds in order) for order in orders)
        replayed.append(replay(orders, len(pipeline.staged) * world.size) / busy - 1)
        clock.append(taken / busy - 1)
    return statistics.median(replayed), statistics.median(clock)


def _record(stage: PipelineStage, recorded: list[Timed]) -> None:
    """Make a stage's passes record the processor time that each took."""

    def timed(method: Callable[..., Any], backward: bool) -> Callable[..., Any]:
        def call(microbatch: int, *arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            answer = method(microbatch, *arguments, **options)
            recorded.append((Action(backward, stage.stage_index, microbatch), time.thread_time() - began))
            return answer

        return call

    stage.forward_one_chunk = timed(stage.forward_one_chunk, backward=False)  # type: ignore[method-assign]
    stage.backward_one_chunk = timed(stage.backward_one_chunk, backward=True)  # type: ignore[method-assign]


def _parts(system: System) -> list[LoadedPart]:
    generator = torch.Generator().manual_seed(1)
    batch = synthetic(_SEQUENCES, _TOKENS // _SEQUENCES, system.model.vocab_size, generator)
    return [LoadedPart(Part(np.arange(_SEQUENCES), 1e-3, 1e-3), batch)] * system.parts


def _bytes(world: World) -> list[Sent]:
    progress = Progress(enabled=world.leads)
    rows: list[Sent] = []
    for name, settings in _LAYOUTS.items():
        progress.message(f"counting the bytes that {name} sends")
        system = load_system(_SYSTEM, [*_SHAPE, *settings])
        trainer = LayoutTrainer(system, world, 1, _TOKENS)
        with Traffic(trainer.groups) as traffic:
            trainer.step(0, _parts(system))
        formula = expected(system, trainer.groups.place, _TOKENS * system.parts)
        mine = [
            Sent(name, world.rank, dimension, traffic.sent.get(dimension, 0), formula[dimension])
            for dimension in formula
        ]
        everyone: list[list[Sent]] = [[]] * world.size
        torch.distributed.all_gather_object(everyone, mine)
        rows += everyone[0] + everyone[-1]
    return rows
