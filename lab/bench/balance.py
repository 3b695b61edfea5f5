"""`lab balance`: time real steps of two ranks on Wikipedia's lengths, dealt as drawn and dealt by cost.

Both methods train on the same global batches, in turns; a step lasts until its slowest rank is done. The result gives
the ratio of the times beside the cost model's prediction.
"""

import statistics
import time
from dataclasses import dataclass

import numpy as np

from bertbench.balance.plan import Balance, Method, Planner, efficiency
from bertbench.data.store.index import pack
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import batch_of
from bertbench.loading.loader import LoadedPart
from bertbench.loading.random_samples import wikipedia_like
from bertbench.loading.sampler import Part
from bertbench.model.sizes import SHAPES
from bertbench.training.whole_trainer import WholeTrainer
from lab.bench.short_run import short_run

METHODS: tuple[Method, Method] = ("none", "planned")


@dataclass(frozen=True)
class Measured:
    """Medians over the measured steps."""

    ranks: int
    batch: int
    step_ms: dict[Method, float]
    ratio: float
    """Time of `none` over time of `planned`."""
    simulated_ratio: float


def measure(size: str, batch: int, steps: int, seed: int, ranks: int = 2) -> Measured:
    """Train `steps` steps with each method on CPU ranks, `batch` samples a rank."""
    measured: Measured = on_ranks(ranks, _on_rank, size, batch, steps, seed)
    return measured


def _on_rank(world: World, size: str, batch: int, steps: int, seed: int) -> Measured:
    system = short_run(
        SHAPES[size], batch, world.size, "cpu", steps + 1, optimizer={"name": "lamb", "learning_rate": 1e-4}
    )
    content = wikipedia_like((steps + 1) * batch * world.size, seed)
    entries = pack(content.lengths, content.masked)
    planners = [
        Planner(entries, Balance(method, system.balance.cost), system.global_batch_size, seed, 1, world.size)
        for method in METHODS
    ]
    trainer = WholeTrainer(system, world, seed)
    times: dict[Method, list[float]] = {method: [] for method in METHODS}
    ratios = []
    for step in range(steps + 1):
        plans = [planner.plan(step) for planner in planners]
        for method, plan in zip(METHODS, plans, strict=True):
            ids = plan.dealt.of(world.rank)
            masked = int(content.masked[plan.dealt.ids_S].sum())
            longest_first = ids[np.argsort(-content.lengths[ids], kind="stable")]
            part = Part(ids, 1 / masked, 1 / system.global_batch_size)
            loaded = LoadedPart(part, batch_of(content.take(longest_first)).to(world.device))
            world.barrier()
            began = time.perf_counter()
            trainer.step(step, [loaded])
            if step:  # the first step warms up
                times[method].append(1e3 * (time.perf_counter() - began))
        if step:
            none, planned = (efficiency(planner.loads(plan)) for planner, plan in zip(planners, plans, strict=True))
            ratios.append(planned / none)
    trainer.close()
    return Measured(
        world.size,
        batch,
        {method: statistics.median(taken) for method, taken in times.items()},
        statistics.median(none / planned for none, planned in zip(*times.values(), strict=True)),
        statistics.median(ratios),
    )
