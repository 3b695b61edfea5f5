"""A snapshot that was saved in one layout resumes in any other."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bertbench.config import System
from bertbench.distributed.world import World
from tests.conftest import Tiny
from tests.parallel.test_equality import LAYOUTS, LOSS, SHAPE, whole
from tests.ranks import run_ranks
from tests.relay import relay

RELAY = ("2x2x1", "1x1x4", "4 sharded", "2x1x2 interleaved", "1x2x2", "4x1x1")


def losses_of_the_relay(world: World, folder: Path, *systems: System) -> list[float]:
    """Return the losses of the relay, in which each system loads exactly the state that the previous one saved."""
    legs = relay(world, folder, 0, systems, whole)
    for before, after in pairwise(legs):
        assert before.left.keys() == after.loaded.keys()
        for name, left in before.left.items():
            assert np.array_equal(left, after.loaded[name]), name
    return [leg.loss for leg in legs]


@pytest.mark.slow
@pytest.mark.parametrize("names", [RELAY[:4], RELAY[3:]])
def test_a_snapshot_resumes_in_every_other_layout(tiny: Tiny, tmp_path: Path, names: tuple[str, ...]) -> None:
    def system(*overrides: str) -> System:
        return tiny("optimizer.name=lamb", "checkpoint.every_steps=1", *SHAPE, *overrides)

    layouts = [system("launch.ranks_per_node=4", *LAYOUTS[name]) for name in names]
    moved = run_ranks(4, losses_of_the_relay, tmp_path, *layouts)[0]
    alone = run_ranks(1, losses_of_the_relay, tmp_path / "alone", *[system("launch.ranks_per_node=1")] * len(names))[0]
    assert moved == pytest.approx(alone, abs=LOSS)
    assert alone[-1] < alone[0]
