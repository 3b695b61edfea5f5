"""Take steps of fixed sizes, replayed from a tape, and plain ones to compare them with."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from bertbench.common.phase_clock import PhaseClock, clocked
from bertbench.common.phases import PHASES, REPLAY
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.bins import BinSampler
from bertbench.loading.loader import LoadedPart, LoadedStep, Loader
from bertbench.loading.sampler import Sampler
from bertbench.training.graph_trainer import GraphTrainer
from bertbench.training.whole_trainer import WholeTrainer
from tests.training.as_on_a_gpu import as_on_a_gpu
from tests.training.steps import SEED, loaded, sampler_of
from tests.training.tape import tape

GRAPHS = ("compute.compile=graphs",)


def plain_and_replayed(
    world: World, plain: System, graphs: System, failing_rank: int | None = None
) -> tuple[list[float], ...]:
    """Losses of a plain trainer, and of one that replays unless its last recording fails on a rank.

    Unlike a graph's, a tape's recording takes the step, so the failing rank must take it, too.
    """
    expected = losses(world, WholeTrainer(plain, world, SEED), plain)
    clock = PhaseClock(world.device)
    sampler = bin_sampler(graphs)
    steps = list(Loader(sampler, world.rank, world.device).steps(range(5)))
    recordings_to_come = len(sampler.bins.all) * min(2, graphs.data.gradient_accumulation_steps)

    def record(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        nonlocal recordings_to_come
        recordings_to_come -= 1
        replay = tape(work)
        if world.rank == failing_rank and recordings_to_come == 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return replay

    with as_on_a_gpu(), clocked(clock):
        replayed = losses_of_steps(world, GraphTrainer(graphs, world, SEED, sampler.bins, record=record), steps)
    assert clock.total_ms()[PHASES.index(REPLAY)] > 0, "a step's time in metrics is that of its phases"
    return expected, replayed


def losses(world: World, trainer: WholeTrainer, system: System) -> list[float]:
    return losses_of_steps(world, trainer, loaded(world, system, 5))


def losses_of_steps(world: World, trainer: WholeTrainer, steps: Iterable[LoadedStep]) -> list[float]:
    answer = []
    for number, step in enumerate(steps):
        report = trainer.step(number, step.parts)
        answer += [world.sum(report.loss.clone()).item(), float(report.norm), float(report.rate)]
    trainer.close()
    return answer


def bin_sampler(system: System) -> BinSampler:
    """The sampler of a run whose steps are recorded."""
    sampler = sampler_of(system)
    assert isinstance(sampler, BinSampler)
    return sampler


def raw_batches(world: World, system: System, count: int) -> list[LoadedPart]:
    """Return the parts of the first steps, as they are read."""
    planned = bin_sampler(system)
    sampler = Sampler(planned.dataset, planned.planner, planned.parts, planned.normalize)
    return [part for step in Loader(sampler, world.rank, world.device).steps(range(count)) for part in step.parts]
