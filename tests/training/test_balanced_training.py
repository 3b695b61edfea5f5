"""Training with every balance method, on four gloo ranks as two nodes of two."""

from collections.abc import Callable

import numpy as np
import pytest

from bertbench.balance.plan import METHODS
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.batch import gather
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.training.build import make_sampler
from bertbench.training.trainer import WholeTrainer
from tests.ranks import run_ranks
from tests.training.steps import loaded

STEPS = 3
# fp32 sums in another order: 1e-6 of a loss near 9, growing a little over the steps
LOSS_TOLERANCE = 2e-5


def on_four_ranks(world: World, systems: list[System]) -> list[list[float]]:
    return [losses(world, system) for system in systems]


def losses(world: World, system: System) -> list[float]:
    training, _ = open_data(system)
    trainer = WholeTrainer(system, world, 11)
    answer = []
    for number, step in enumerate(loaded(world, system, STEPS)):
        own = np.concatenate([part.ids for part, _ in step.parts])
        assert sum(len(batch.tokens_T) for _, batch in step.parts) == training.lengths(own).sum()
        answer.append(world.sum(trainer.step(number, step.parts).loss).item())
    trainer.close()
    return answer


def alone(world: World, systems: list[System]) -> list[list[float]]:
    """One rank works through what the plan gives to all ranks, as one batch."""
    answers = []
    for system in systems:
        training, _ = open_data(system)
        trainer = WholeTrainer(system, world, 11)
        sampler = make_sampler(system, training, 11)
        answers.append([])
        for step in range(STEPS):
            ids = sampler.planner.plan(step).dealt.ids_S
            batch = gather(training.map_samples(), ids, training.lengths(ids))
            part = Part(ids, 1 / len(batch.masked_at_M), 1 / len(ids))
            answers[-1].append(trainer.step(step, [LoadedPart(part, batch)]).loss.item())
        trainer.close()
    return answers


def test_gradients_are_those_of_one_rank_with_every_method(tiny: Callable[..., System]) -> None:
    # losses after the first step tell the gradients before them
    systems = [tiny(f"data.balance={method}", "hardware.number_of_nodes=2") for method in METHODS]
    systems.append(tiny("data.balance=planned", "hardware.number_of_nodes=2", "data.gradient_accumulation_steps=3"))
    (expected,) = run_ranks(1, alone, systems)
    for measured in run_ranks(4, on_four_ranks, systems):
        for method, ours, theirs in zip((*METHODS, "planned in parts"), measured, expected, strict=True):
            assert ours == pytest.approx(theirs, abs=LOSS_TOLERANCE), method
