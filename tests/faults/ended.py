"""Ranks that are meant to fail: processes of a function, with their exit codes and output."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.config import System
from bertbench.distributed.ranks import launched_ranks
from bertbench.distributed.world import World
from bertbench.launch.rank import as_rank
from bertbench.runs.files import ResultFiles
from bertbench.runs.run_progress import RunProgress
from bertbench.training.build import TrainOptions
from bertbench.training.train import train
from compliance.read.log import Event, read_events
from lab.spawn import environments_of
from tests.ranks import CONTEXT, LIMIT_S

SEED = 5


class Ended(NamedTuple):
    """How a run ended."""

    codes: list[int | None]
    said: str
    events: list[Event]

    def message(self) -> str:
        """Return the only message on standard error, which is also in the log."""
        assert "Traceback" not in self.said, self.said
        (message,) = [line for line in self.said.splitlines() if line.startswith("bertbench: ")]
        (stop,) = [event for event in self.events if event.key == "run_stop"]
        assert stop.metadata["status"] == "aborted"
        assert f"bertbench: {stop.metadata['reason']}" == message
        return message.removeprefix("bertbench: ")


def trained(folder: Path, system: System, damage: Callable[[World], None], **options: Any) -> Ended:
    """Train on two ranks, after `damage(world)` was called on each, and wait until both have ended."""
    log, said = folder / "result_0.txt", folder / "said"
    processes = [
        CONTEXT.Process(target=as_launched, args=(environment, said, system, log, damage, options))
        for environment in environments_of(2)
    ]
    for process in processes:
        process.start()
    return ended(processes, said, log)


def ended(processes: Sequence[BaseProcess], said: Path, log: Path) -> Ended:
    """Wait until all processes have ended."""
    for process in processes:
        process.join(LIMIT_S)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert None not in codes, f"ended within {LIMIT_S} s: {codes}; they said: {said.read_text()}"
    return Ended(codes, said.read_text(), read_events(log))


def as_launched(
    environment: Mapping[str, str],
    said: Path,
    system: System,
    log: Path,
    damage: Callable[[World], None],
    options: dict[str, Any],
) -> None:
    """Act as the rank that the environment names, and write all output to a file."""
    os.environ.update(environment)
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())
    ranks = launched_ranks(os.environ)
    with as_rank(system, ranks) as world:
        files = ResultFiles(log) if world.leads else None
        if files:
            files.folder.mkdir(exist_ok=True)
        world.barrier()
        damage(world)
        train(system, world, SEED, files, RunProgress(system, enabled=False), TrainOptions(**options))
