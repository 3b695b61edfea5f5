"""Steps from a snapshot on, and a relay: each system goes on with the one before's snapshot, and leaves its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

from bertbench.checkpoint.snapshot_folder import step_folder, verified
from bertbench.checkpoint.snapshots import Snapshots
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.loading.loader import Loader, make_exchange
from bertbench.runs.files import ResultFiles
from bertbench.runs.metrics import Metrics
from bertbench.training.build import TrainerOptions, make_trainer
from bertbench.training.technique import EVERY_STEP, Technique
from bertbench.training.trainer import Trainer
from tests.training.steps import SEED, sampler_of

Seen = TypeVar("Seen")


class Leg(NamedTuple, Generic[Seen]):
    """A system's step in a relay: its loss on all ranks, and what this rank saw of the state before and after it."""

    loss: float
    loaded: Seen
    left: Seen


def take_steps(
    world: World,
    system: System,
    log: Path,
    steps: range,
    before: Path | None,
    see: Callable[[Trainer], Seen],
    technique: Technique = EVERY_STEP,
) -> tuple[Trainer, list[float], Seen]:
    """Take steps, after those of snapshot `before`; the trainer, the loss of each step, and what was seen before them.

    A snapshot is left where one is due.
    """
    files = ResultFiles(log)
    if world.leads:
        files.folder.mkdir(parents=True, exist_ok=True)
        files.log.touch()
    sampler = sampler_of(system)
    trainer = make_trainer(system, world, SEED, sampler, TrainerOptions(technique=technique))
    configuration = system.model_dump(mode="json", by_alias=True)
    snapshots = Snapshots(system, configuration, world, SEED, files if world.leads else None)
    if before:
        snapshots.load(trainer, before, verified(before))
    loaded = see(trainer)
    exchange = make_exchange(system, sampler, world)
    loader = Loader(sampler, system.layout.coordinate(world.rank).data, world.device, exchange)
    losses = []
    with Metrics(files.metrics if world.leads else None, world) as metrics:
        for step, parts in zip(steps, loader.steps(steps), strict=True):
            losses.append(world.sum(trainer.step(step, parts.parts).loss).item())
            snapshots.save_if_due(trainer, step + 1, [], metrics)
    snapshots.close()
    world.barrier()
    return trainer, losses, loaded


def relay(
    world: World,
    folder: Path,
    taken: int,
    systems: tuple[System, ...],
    see: Callable[[dict[str, Tensor]], Seen],
) -> list[Leg[Seen]]:
    """Run the relay after `taken` steps, a step of each system."""
    legs = []
    for step, system in enumerate(systems, start=taken):
        log, steps = folder / f"result_{step}.txt", range(step, step + 1)
        before = step_folder(ResultFiles(folder / f"result_{step - 1}.txt").snapshots, step) if step else None
        trainer, (loss,), loaded = take_steps(world, system, log, steps, before, lambda built: see(built.state()))
        legs.append(Leg(loss, loaded, see(trainer.state())))
        trainer.close()
    return legs
