"""The step with Triton's optimizer on two ranks, in Triton's interpreter: 16-bit sums in, 16-bit weights out."""

from unittest import mock

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from bertbench.config import System
from bertbench.distributed.world import World
from tests.conftest import Tiny
from tests.optim.test_triton import by_interpreter
from tests.training.steps import loaded, whole_trainer

pytestmark = pytest.mark.slow
pytest.importorskip("triton", reason="Triton is not installed (bertbench[kernels] brings it)")

RUN = (
    "launch.ranks_per_node=2", "precision.compute=bf16", "compute.compile=default", "optimizer.name=lamb",
    "optimizer.learning_rate=0.01", "communication.compression=bf16", "clip.mode=before", "clip.max_norm=0.1",
)  # fmt: skip
STEPS = 2


def test_two_ranks_take_the_plain_optimizer_s_steps_together(tiny: Tiny) -> None:
    plain = tiny(*RUN)
    optimizer = plain.optimizer.model_copy(update={"impl": "triton"})  # which a system file may ask for on GPUs only
    by_triton = plain.model_copy(update={"optimizer": optimizer})
    (expected, found), (_, of_the_other) = by_interpreter(2, updates, plain, by_triton)
    assert found == of_the_other, "both read the sum"
    # the interpreter cuts copies off at bf16 where a GPU rounds, and Adam's first updates are signs of gradients
    assert np.linalg.norm(np.subtract(found, expected)) < 0.15 * np.linalg.norm(expected)


def updates(world: World, *systems: System) -> list[list[float]]:
    """Return the change of the weights by two steps of each system."""
    found = []
    with mock.patch.object(torch, "compile", lambda function, **_: function):
        for system in systems:
            with whole_trainer(system, world) as trainer:
                before = parameters_to_vector(trainer.model.parameters()).detach().clone()
                for number, step in enumerate(loaded(world, system, STEPS)):
                    trainer.step(number, step.parts)
                after = parameters_to_vector(trainer.model.parameters()).detach()
                found.append((after - before).tolist())
    return found
