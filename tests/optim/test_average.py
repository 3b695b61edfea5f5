"""The average of the weights, worked out by hand, and its place in a trainer."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.gradients.buckets import ModelWeights
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.optim.average import AverageView
from bertbench.training.build import make_trainer
from bertbench.training.trainer import Trainer
from tests.conftest import Tiny
from tests.ranks import run_each
from tests.training.steps import loaded, sampler_of


def test_an_average_weighs_steps_by_powers_of_the_decay() -> None:
    weight = nn.Parameter(torch.tensor([9.0]))
    average = AverageView(ModelWeights(), LogicalTensors([weight], {}), 0.5)
    for step, value in enumerate((1.0, 2.0, 4.0), start=1):
        weight.data.fill_(value)
        average.after_update(step)
    # weights 1/4, 1/2, 1 of their sum 7/4: (0.25 + 1 + 4) / 1.75; the 9 from before the first step doesn't count
    with average.evaluating():
        assert weight.item() == pytest.approx(3.0)
    assert weight.item() == 4.0


Seen = tuple[list[float], list[float], list[float]]
"""Losses by step; the weights that evaluations read; the weights after them."""


def trained(world: World, system: System) -> Seen:
    """Train for 4 steps, with an evaluation's view after the second."""
    trainer = make_trainer(system, world, 3, sampler_of(system, seed=3))
    losses, read = [], []
    for step, batches in enumerate(loaded(world, system, 4, seed=3)):
        losses.append(world.sum(trainer.step(step, batches.parts).loss).item())
        if step == 1:
            with trainer.evaluating():
                read = whole(trainer)
    after = whole(trainer)
    trainer.close()
    return losses, read, after


def whole(trainer: Trainer) -> list[float]:
    model = trainer.gather_model()
    return [] if model is None else parameters_to_vector(model.parameters()).tolist()


def test_an_average_changes_what_evaluations_read_and_no_bit_of_training(tiny: Tiny) -> None:
    averaging = "optimizer.ema_decay=0.5"
    systems = [tiny(), tiny(averaging), tiny(averaging, "optimizer.sharded=true")]
    plain, averaged, sliced = run_each(2, trained, *((system,) for system in systems))[0]
    assert (averaged[0], averaged[2]) == (plain[0], plain[2])
    assert averaged[1] != plain[1]
    # the same average wherever the weights are; Adam's sums differ in their order
    assert sliced[1] == pytest.approx(averaged[1], abs=1e-5)
