"""The step with Triton's optimizer on two ranks, run by Triton's interpreter: 16-bit sums in, 16-bit weights out.

Also the check of it before the clock starts.
"""

from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.gradients.exchange import Wait
from bertbench.gradients.gradient_sum import KeptBf16Sum
from bertbench.machine.choose_arithmetic import Arithmetic
from bertbench.training.self_check import check_fast_paths
from tests.conftest import Tiny
from tests.optim.test_triton import by_interpreter
from tests.training.steps import loaded, whole_trainer
from tests.training.test_self_check import arithmetic

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


def test_triton_s_optimizer_is_refused_at_the_start_if_the_sums_that_it_reads_are_wrong(tiny: Tiny) -> None:
    for sound, wrong in by_interpreter(2, checks, tiny(*RUN)):
        assert (sound.checked, sound.refused, sound.impl) == (("bf16", "Triton optimizer"), (), "triton")
        (refusal,) = wrong.refused
        assert refusal.startswith("Triton optimizer refused: optimizer.")
        assert refusal.endswith("; using torch's optimizer instead")
        assert wrong.impl == "torch"


def checks(world: World, system: System) -> list[Arithmetic]:
    """What the check at the start leaves of bf16 and Triton's optimizer: with sound sums, and with lost ones."""
    wanted = arithmetic(precision="bf16", impl="triton")
    with mock.patch.object(torch, "compile", lambda function, **_: function):
        sound = check_fast_paths(system, world, wanted)
        with mock.patch.object(KeptBf16Sum, "_restoring", own_gradient):
            return [sound, check_fast_paths(system, world, wanted)]


def own_gradient(_: KeptBf16Sum, wait: Wait, buffer: Tensor, half: Tensor) -> Wait:
    """Wait for the sum, and leave this rank's own gradient in its place."""

    def restore() -> None:
        wait()
        half.copy_(buffer)

    return restore
