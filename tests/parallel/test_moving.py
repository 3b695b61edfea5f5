"""A snapshot that was taken under one layout goes on under any other."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bertbench.checkpoint.snapshot import step_folder, verified
from bertbench.checkpoint.snapshots import Snapshots
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.loader import Loader
from bertbench.results.files import ResultFiles
from bertbench.results.metrics import Metrics
from bertbench.results.mlperf_log import MlperfLog
from bertbench.training.build import make_sampler, make_trainer
from bertbench.training.inputs import open_data
from tests.parallel.test_equality import LAYOUTS, LOSS, SHAPE, whole
from tests.ranks import run_ranks

RELAY = ("2x2x1", "1x1x4", "4 sharded", "2x1x2 interleaved", "1x2x2", "4x1x1")


def losses_of_the_relay(world: World, folder: Path, *systems: System) -> list[float]:
    """Each system in turn goes on with the snapshot of the one before, takes a step and leaves its own."""
    answers = []
    for taken, system in enumerate(systems):
        files = ResultFiles(folder / f"result_{taken}.txt")
        if world.leads:
            files.folder.mkdir(parents=True)
            files.log.touch()
        training, _ = open_data(system)
        sampler = make_sampler(system, training, 11)
        trainer = make_trainer(system, world, 11, sampler)
        snapshots = Snapshots(system, world, 11, files if world.leads else None)
        if taken:
            before = step_folder(ResultFiles(folder / f"result_{taken - 1}.txt").snapshots, taken)
            snapshots.load(trainer, before, verified(before))
        loaded = whole(trainer.state())
        place = system.layout.coordinate(world.rank).data
        (step,) = Loader(sampler, place, world.device).steps(range(taken, taken + 1))
        loss = world.sum(trainer.step(taken, step.parts).loss).item()
        with MlperfLog(None) as log, Metrics(files.metrics if world.leads else None, world, log) as metrics:
            snapshots.save_if_due(trainer, taken + 1, [], metrics)
            snapshots.close()
        world.barrier()
        answers.append((loss, loaded, whole(trainer.state())))
        trainer.close()
    for (_, _, left), (_, found, _) in pairwise(answers):
        assert left.keys() == found.keys()
        assert all(np.array_equal(left[name], found[name]) for name in left)
    return [loss for loss, _, _ in answers]


@pytest.mark.slow
@pytest.mark.parametrize("names", [RELAY[:4], RELAY[3:]])
def test_a_snapshot_goes_on_in_every_other_layout(
    tiny: Callable[..., System], tmp_path: Path, names: tuple[str, ...]
) -> None:
    def system(*overrides: str) -> System:
        return tiny("optimizer.name=lamb", "checkpoint.every_steps=1", *SHAPE, *overrides)

    layouts = [system("launch.ranks_per_node=4", *LAYOUTS[name]) for name in names]
    moved = run_ranks(4, losses_of_the_relay, tmp_path, *layouts)[0]
    alone = run_ranks(1, losses_of_the_relay, tmp_path / "alone", *[system("launch.ranks_per_node=1")] * len(names))[0]
    assert moved == pytest.approx(alone, abs=LOSS)
    assert alone[-1] < alone[0]
