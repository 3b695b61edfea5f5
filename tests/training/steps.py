"""The first steps of a tiny system on this rank: loaded as a run loads them, and trained."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torch.nn.utils import parameters_to_vector

from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, gather
from bertbench.loading.filler import Fill, unfilled
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import LoadedStep, Loader, make_exchange
from bertbench.loading.sampler import Sampler
from bertbench.training.build import make_sampler
from bertbench.training.technique import EVERY_STEP, Technique
from bertbench.training.trainer import Trainer
from bertbench.training.whole_trainer import WholeTrainer

SEED = 11


def sampler_of(system: System, seed: int = SEED) -> Sampler:
    """Assign the system's training samples."""
    return make_sampler(system, open_data(system)[0], seed)


def batch_of(sampler: Sampler, ids: Integers) -> Batch:
    """These samples as one batch."""
    return gather(sampler.dataset.map_samples(), ids, sampler.dataset.lengths(ids))


def loaded(world: World, system: System, steps: int, seed: int = SEED, fill: Fill = unfilled) -> Iterator[LoadedStep]:
    """This rank's samples of the first steps. Collective if the system's balance method exchanges samples."""
    sampler = sampler_of(system, seed=seed)
    exchange, rank = make_exchange(system, sampler, world), system.layout.coordinate(world.rank).data
    return Loader(sampler, rank, world.device, exchange, fill=fill).steps(range(steps))


@contextmanager
def whole_trainer(
    system: System, world: World, seed: int = SEED, technique: Technique = EVERY_STEP
) -> Iterator[WholeTrainer]:
    """A trainer of the whole model, closed after the body."""
    trainer = WholeTrainer(system, world, seed, technique=technique)
    yield trainer
    trainer.close()


def losses_of(world: World, system: System, trainer: Trainer, steps: int, seed: int = SEED) -> list[float]:
    """Take the first steps; their losses over all ranks, as metrics.jsonl has them."""
    steps_loaded = enumerate(loaded(world, system, steps, seed))
    return [world.sum(trainer.step(number, step.parts).loss).item() for number, step in steps_loaded]


class Trained(NamedTuple):
    """A trainer of the whole model after some steps."""

    losses: list[float]
    """Over all ranks, as metrics.jsonl has them."""
    clipping: list[tuple[float, float]]
    """Norm and share of clipped buckets of each step."""
    weights: list[float]
    state: set[str]
    """The kinds of tensors that its snapshot holds."""
    buckets: tuple[int, ...]


def trained(world: World, steps: int, *systems: System | tuple[System, Technique], seed: int = SEED) -> list[Trained]:
    """Take the first steps of each system, or of a system by a technique."""
    answers = []
    for entry in systems:
        system, technique = entry if isinstance(entry, tuple) else (entry, EVERY_STEP)
        batches = enumerate(loaded(world, system, steps, seed))
        with whole_trainer(system, world, seed, technique) as trainer:
            reports = [trainer.step(number, step.parts) for number, step in batches]
            answers.append(
                Trained(
                    [world.sum(report.loss).item() for report in reports],
                    [(float(report.norm), float(report.clipped)) for report in reports],
                    parameters_to_vector(trainer.model.parameters()).tolist(),
                    {name.split(".")[0] for name in trainer.state()},
                    trainer.describe_step().bucket_elements,
                )
            )
    return answers
