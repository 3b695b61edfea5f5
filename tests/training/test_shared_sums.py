from dataclasses import replace

import pytest

from bertbench.config import System
from bertbench.distributed.world import World
from tests.conftest import Tiny
from tests.ranks import run_each, run_ranks
from tests.training.steps import Trained, trained, whole_trainer
from tests.training.test_sharded import SEVERAL_BUCKETS, STEPS


def both_ways(world: World, system: System) -> tuple[Trained, Trained]:
    (by_memory,), (by_gloo,) = (trained(each, STEPS, system) for each in (world, replace(world, shared=None)))
    return by_memory, by_gloo


@pytest.mark.parametrize("mode", ["after", "before", "bucket"])
@pytest.mark.parametrize("compression", ["none", "fp16"])
def test_two_ranks_train_as_with_gloo_to_the_last_bit(tiny: Tiny, mode: str, compression: str) -> None:
    settings = ("clip.max_norm=0.3", f"clip.mode={mode}", f"communication.compression={compression}")
    for by_memory, by_gloo in run_ranks(2, both_ways, tiny(SEVERAL_BUCKETS, *settings)):
        assert by_memory == by_gloo


def transport(world: World, system: System) -> str:
    with whole_trainer(system, world) as trainer:
        return trainer.describe_step().transport


def test_a_run_states_how_its_gradients_are_summed(tiny: Tiny) -> None:
    ways = ((), ("optimizer.sharded=true", "optimizer.name=lamb"))
    said = run_each(2, transport, *((tiny(*way),) for way in ways))[0]
    assert said == ["shared memory", "collectives"]
