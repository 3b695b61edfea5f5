from dataclasses import replace

from bertbench.config import System
from bertbench.distributed.world import World
from tests.conftest import Tiny
from tests.ranks import run_each, run_ranks
from tests.training.steps import Trained, trained, whole_trainer
from tests.training.test_sharded import SEVERAL_BUCKETS, STEPS


def both_ways(world: World, *systems: System) -> tuple[list[Trained], list[Trained]]:
    return trained(world, STEPS, *systems), trained(replace(world, shared=None), STEPS, *systems)


def test_two_ranks_train_as_with_gloo_to_the_last_bit(tiny: Tiny) -> None:
    ways = (("after", "none"), ("before", "fp16"), ("bucket", "none"), ("bucket", "fp16"))
    systems = [
        tiny(SEVERAL_BUCKETS, "clip.max_norm=0.3", f"clip.mode={mode}", f"communication.compression={compression}")
        for mode, compression in ways
    ]
    for by_memory, by_gloo in run_ranks(2, both_ways, *systems):
        assert by_memory == by_gloo


def transport(world: World, system: System) -> str:
    with whole_trainer(system, world) as trainer:
        return trainer.describe_step().transport


def test_a_run_states_how_its_gradients_are_summed(tiny: Tiny) -> None:
    ways = ((), ("optimizer.sharded=true", "optimizer.name=lamb"))
    said = run_each(2, transport, *((tiny(*way),) for way in ways))[0]
    assert said == ["shared memory", "collectives"]
