"""Training with every balance method, on four gloo ranks as two nodes of two."""

import pytest

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from tests.conftest import Tiny
from tests.ranks import run_each, run_ranks
from tests.training.steps import batch_of, sampler_of, trained, whole_trainer
from tests.training.test_trainer import LOSS_TOLERANCE

STEPS = 3
# from a rank's own samples, from its node's, from all ranks', by a plan of the whole batch, and in rows of 512 tokens;
# tests/balance has the plans of the others
METHODS = ("none", "presort", "global_exchange", "planned", "packed")


def alone(world: World, system: System) -> list[float]:
    """Let one rank process the samples that the plan gives to all ranks, as one batch."""
    sampler, answer = sampler_of(system), []
    with whole_trainer(system, world) as trainer:
        for step in range(STEPS):
            ids = sampler.planner.plan(step).assigned.ids_S
            batch = batch_of(sampler, ids)
            part = Part(ids, 1 / len(batch.masked_at_M), 1 / len(ids))
            answer.append(trainer.step(step, [LoadedPart(part, batch)]).loss.item())
    return answer


def test_gradients_are_those_of_one_rank_however_samples_reach_their_ranks(tiny: Tiny) -> None:
    # losses after the first step tell the gradients before them
    ways = [(f"data.balance={method}",) for method in METHODS]
    ways.append(("data.balance=planned", "data.gradient_accumulation_steps=3"))
    systems = [tiny("hardware.number_of_nodes=2", *way) for way in ways]
    (expected,) = run_each(1, alone, *((system,) for system in systems))
    for measured in run_ranks(4, trained, STEPS, *systems):
        for way, ours, theirs in zip(ways, measured, expected, strict=True):
            assert ours.losses == pytest.approx(theirs, abs=LOSS_TOLERANCE), way
