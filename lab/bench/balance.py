"""`lab balance`: time real steps of two ranks on Wikipedia's lengths, dealt as drawn and dealt by cost.

Both methods train on the same global batches; a step lasts until its slowest rank is done. The result gives the ratio
of the times and what the cost model predicts.
"""

import argparse
import statistics
from functools import partial

import numpy as np

from bertbench.balance.plan import Balance, Method, Planner, efficiency
from bertbench.common.progress import Progress
from bertbench.config import System
from bertbench.data.store.columns import Columns, pack
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import batch_of
from bertbench.loading.loader import LoadedPart
from bertbench.loading.random_samples import wikipedia_like
from bertbench.loading.sampler import Part
from bertbench.machine.processor import processor
from bertbench.model.shape import SHAPES
from bertbench.training.trainer import WholeTrainer
from lab.bench.harness import Found, command, in_turns, milliseconds, paired_ratio
from lab.bench.short_run import short_run

METHODS: tuple[Method, Method] = ("none", "planned")
_RANKS = 2


def measure(arguments: argparse.Namespace, _: Progress) -> Found:
    """Train `steps` steps with each method on CPU ranks, `batch` samples a rank."""
    batch, steps, seed = arguments.batch, arguments.steps, arguments.seed
    system = short_run(
        SHAPES["small"], batch, _RANKS, "cpu", steps + 1, optimizer={"name": "lamb", "learning_rate": 1e-4}
    )
    content = wikipedia_like((steps + 1) * batch * _RANKS, seed)
    times = on_ranks(_RANKS, _on_rank, system, content, steps, seed)
    planners = _planners(system, content, seed).values()
    none, planned = ([efficiency(own.loads(own.plan(step))) for step in range(1, steps + 1)] for own in planners)
    measured, simulated = paired_ratio(*times.values()), paired_ratio(planned, none).ratio
    step_ms = {method: statistics.median(own) for method, own in times.items()}
    found = {
        "machine": processor(), "ranks": _RANKS, "batch": batch, "step_ms": step_ms, "ratio": measured.ratio,
        "ratio_low": measured.low, "ratio_high": measured.high, "simulated_ratio": simulated,
    }  # fmt: skip
    shown = ", ".join(f"{method} {taken:,.0f} ms" for method, taken in step_ms.items())
    return Found(
        found,
        [
            f"small, {_RANKS} ranks x {batch} samples on {processor()}: {shown} a step",
            f"none over planned, {steps} pairs: {measured}; the cost model predicts {simulated:.3f}",
        ],
    )


def _planners(system: System, content: Columns, seed: int) -> dict[Method, Planner]:
    entries, ranks = pack(content.lengths, content.masked), system.world_size
    return {
        method: Planner(entries, Balance(method, system.balance.cost), system.global_batch_size, seed, 1, ranks)
        for method in METHODS
    }


def _on_rank(world: World, system: System, content: Columns, steps: int, seed: int) -> dict[Method, list[float]]:
    """Return this rank's milliseconds a step by method, after a first one that warms up."""
    trainer, planners = WholeTrainer(system, world, seed), _planners(system, content, seed)

    def step(method: Method, number: int) -> float:
        dealt = planners[method].plan(number).dealt
        ids = dealt.of(world.rank)
        longest_first = ids[np.argsort(-content.lengths[ids], kind="stable")]
        part = Part(ids, 1 / int(content.masked[dealt.ids_S].sum()), 1 / system.global_batch_size)
        loaded = LoadedPart(part, batch_of(content.take(longest_first)))
        world.barrier()
        return milliseconds(lambda: trainer.step(number, [loaded]))

    times = in_turns({method: partial(step, method) for method in METHODS}, steps, warm_up=1)
    trainer.close()
    return times


add_arguments, run = command(
    measure, ("--batch", 8, "samples a rank and step"), ("--steps", 15, "steps with each method"),
    seeds="lengths, tokens and order",
)  # fmt: skip
