"""Gradients summed in bf16, with whole optimizer state and with slices, against sums in fp32: 200 steps."""

from collections.abc import Callable

import numpy as np
import pytest

from bertbench.config import System
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import Loader
from bertbench.training.build import make_sampler
from bertbench.training.whole_trainer import WholeTrainer
from tests.training.test_accuracy_unharmed import DEMO_SIZES

STEPS, LAST = 200, 40


@pytest.mark.slow  # 20 s a run
def test_two_hundred_steps_with_halved_gradients_end_where_those_in_fp32_end(tiny: Callable[..., System]) -> None:
    lamb = ("optimizer.name=lamb", *DEMO_SIZES, "launch.ranks_per_node=2")
    halved = "communication.compression=bf16"
    ways = {"fp32": (), "bf16": (halved,), "bf16 in slices": (halved, "optimizer.sharded=true")}
    curves = {name: np.array(on_ranks(2, losses, tiny(*lamb, *overrides))) for name, overrides in ways.items()}
    full = curves.pop("fp32")
    assert full[-LAST:].mean() < 0.75 * full[0]
    for name, curve in curves.items():
        ends, expected = curve[-LAST:].mean(), full[-LAST:].mean()
        print(f"{name}: {expected:.4f} in fp32, {ends:.4f}; apart by {np.abs(curve - full).max():.1e} at most")
        assert curve[-1] != full[-1], name
        assert ends == pytest.approx(expected, rel=0.001), name


def losses(world: World, system: System) -> list[float]:
    training, _ = open_data(system)
    trainer = WholeTrainer(system, world, 11)
    loaded = Loader(make_sampler(system, training, 11), world.rank, world.device).steps(range(STEPS))
    answer = [world.sum(trainer.step(number, step.parts).loss).item() for number, step in enumerate(loaded)]
    trainer.close()
    return answer
