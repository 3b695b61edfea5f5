"""A relay of snapshots: each system goes on with the snapshot of the one before, takes a step and leaves its own."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from bertbench.checkpoint.snapshot import step_folder, verified
from bertbench.checkpoint.snapshots import Snapshots
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import Loader
from bertbench.results.files import ResultFiles
from bertbench.results.metrics import Metrics
from bertbench.results.mlperf_log import MlperfLog
from bertbench.training.build import make_sampler, make_trainer

Seen = TypeVar("Seen")


def relay(
    world: World,
    folder: Path,
    taken: int,
    systems: tuple[System, ...],
    see: Callable[[dict[str, torch.Tensor]], Seen],
) -> list[tuple[float, Seen, Seen]]:
    """Run the relay after `taken` steps; for each system the loss of its step, and its state before and after it."""
    answers = []
    for step, system in enumerate(systems, start=taken):
        files = ResultFiles(folder / f"result_{step}.txt")
        if world.leads:
            files.folder.mkdir(parents=True)
            files.log.touch()
        training, _ = open_data(system)
        sampler = make_sampler(system, training, 11)
        trainer = make_trainer(system, world, 11, sampler)
        snapshots = Snapshots(system, world, 11, files if world.leads else None)
        if step:
            before = step_folder(ResultFiles(folder / f"result_{step - 1}.txt").snapshots, step)
            snapshots.load(trainer, before, verified(before))
        loaded = see(trainer.state())
        (parts,) = Loader(sampler, system.layout.coordinate(world.rank).data, world.device).steps(range(step, step + 1))
        loss = world.sum(trainer.step(step, parts.parts).loss).item()
        with MlperfLog(None) as log, Metrics(files.metrics if world.leads else None, world, log) as metrics:
            snapshots.save_if_due(trainer, step + 1, [], metrics)
            snapshots.close()
        world.barrier()
        answers.append((loss, loaded, see(trainer.state())))
        trainer.close()
    return answers
