"""Gradients summed in bf16, with whole optimizer state and with slices, against sums in fp32: 200 steps."""

import numpy as np
import pytest

from lab.spawn import on_ranks
from tests.conftest import Tiny
from tests.training.steps import trained
from tests.training.test_accuracy_unharmed import DEMO_SIZES

STEPS, LAST = 200, 40


@pytest.mark.slow  # 20 s a run
def test_two_hundred_steps_with_halved_gradients_end_with_the_loss_of_fp32(tiny: Tiny) -> None:
    lamb = ("optimizer.name=lamb", *DEMO_SIZES, "launch.ranks_per_node=2")
    halved = "communication.compression=bf16"
    ways = {"fp32": (), "bf16": (halved,), "bf16 in slices": (halved, "optimizer.sharded=true")}
    systems = (tiny(*lamb, *overrides) for overrides in ways.values())
    full, *curves = (np.array(one.losses) for one in on_ranks(2, trained, STEPS, *systems))
    assert full[-LAST:].mean() < 0.75 * full[0]
    for name, curve in zip([*ways][1:], curves, strict=True):
        assert curve[-1] != full[-1], name
        assert curve[-LAST:].mean() == pytest.approx(full[-LAST:].mean(), rel=0.001), name
