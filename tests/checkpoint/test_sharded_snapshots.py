"""Snapshots of sharded optimizer state resume with whole state, with other shards, and on other numbers of ranks."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from bertbench.config import System, load_system
from bertbench.distributed.world import World
from tests.conftest import write_json
from tests.pieces import Pieces, pieces_of, put_together
from tests.ranks import run_ranks
from tests.relay import Leg, relay
from tests.tiny import tiny_system

pytestmark = pytest.mark.slow
SLICED = "optimizer.sharded=true"
SMALL_BUCKETS = "communication.bucket_mb=0.003"


class Stage(NamedTuple):
    """A system's step in the relay, over all of its ranks: its loss, and the state before and after it, whole."""

    loss: float
    loaded: dict[str, np.ndarray]
    left: dict[str, np.ndarray]


def legs_of(world: World, folder: Path, taken: int, *systems: System) -> list[Leg[Pieces]]:
    return relay(world, folder, taken, systems, pieces_of)


def stages_on(ranks: int, folder: Path, taken: int, *systems: System) -> list[Stage]:
    """Run the systems one after the other on so many ranks, after `taken` steps."""
    legs_by_rank = run_ranks(ranks, legs_of, folder, taken, *systems)
    return [
        Stage(
            legs[0].loss,
            loaded=put_together(leg.loaded for leg in legs),
            left=put_together(leg.left for leg in legs),
        )
        for legs in zip(*legs_by_rank, strict=True)
    ]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Callable[..., System]:
    """Return a function from a number of ranks and overrides to a system that saves every step."""
    file = write_json(tmp_path_factory.mktemp("system") / "tiny.json", tiny_system(tiny_folder))
    common = ("optimizer.name=lamb", "checkpoint.every_steps=1", "clip.mode=after")
    return lambda ranks, *overrides: load_system(file, (*common, f"launch.ranks_per_node={ranks}", *overrides))


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory, system: Callable[..., System]) -> list[Stage]:
    """A relay from slices of two ranks to whole state, to other slices, and to those of four ranks."""
    folder = tmp_path_factory.mktemp("relay")
    on_two_ranks = (system(2, SLICED), system(2), system(2, SLICED, SMALL_BUCKETS))
    on_four_ranks = system(4, SLICED, SMALL_BUCKETS)
    return [
        *stages_on(2, folder, 0, *on_two_ranks),
        *stages_on(4, folder, len(on_two_ranks), on_four_ranks),
    ]


def test_each_system_loads_the_previous_ones_snapshot_bit_for_bit(stages: list[Stage]) -> None:
    for before, after in pairwise(stages):
        assert before.left.keys() == after.loaded.keys()
        for name, left in before.left.items():
            assert np.array_equal(left, after.loaded[name]), name


def test_losses_equal_those_of_one_rank(stages: list[Stage], system: Callable[..., System], tmp_path: Path) -> None:
    alone = stages_on(1, tmp_path, 0, *[system(1)] * len(stages))
    # fp32 sums in another order
    assert [stage.loss for stage in stages] == pytest.approx([stage.loss for stage in alone], abs=2e-5)
