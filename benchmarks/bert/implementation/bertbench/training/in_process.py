"""Train in this process: a run of one rank, for notebooks, debuggers and other programs.

`bertbench train` starts processes and may end them. Here, this process does the whole run, and an error is raised
instead of ending the process. Everything that the run changes in the process is restored afterwards: torch's threads
and random state, signal handlers, and gloo's interface.
"""

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import distributed

from bertbench.checkpoint.start import check_start
from bertbench.common.errors import ConfigError, RunError, check_whole_number
from bertbench.common.paths import shown_path
from bertbench.common.reads import Unread
from bertbench.config import System
from bertbench.config.given import check_given, unread_line
from bertbench.distributed.gloo import INTERFACES
from bertbench.distributed.preemption import SIGNALS
from bertbench.distributed.ranks import Ranks, launched_ranks
from bertbench.distributed.startup import Startup
from bertbench.distributed.watchdog import Limits
from bertbench.distributed.world import World, join
from bertbench.launch.local import begin_attempt, close_log
from bertbench.launch.rank import SEED_BITS
from bertbench.launch.run_options import TRAIN, RunOptions
from bertbench.loading.inputs import open_data, recipe_differences
from bertbench.machine.describe import hardware_differences
from bertbench.runs.files import ResultFiles
from bertbench.runs.run_progress import RunProgress
from bertbench.runs.run_summary import RunSummary, read_summary
from bertbench.training.build import TrainOptions
from bertbench.training.opened import open_run_files
from bertbench.training.train import train

_ALONE = Ranks(rank=0, size=1, local_rank=0, local_size=1)
_NEVER_S = 1e7  # no other rank waits for this one, which may have stopped at a breakpoint
_HONOURED = "`bertbench train`, which has its own process, honours it"
RUN_TRAINING = replace(
    TRAIN,
    command="run_training",
    exceptions={
        **TRAIN.exceptions,
        "launch.port": Unread(f"a single rank has no others to meet; {_HONOURED}", accepted=(0,)),
        "launch.stall_timeout_s": Unread(f"no other rank waits for the only one; {_HONOURED}"),
        "launch.progress_timeout_s": Unread(f"no other rank waits for the only one; {_HONOURED}"),
        "launch.bind_cores": Unread(f"the process of the caller keeps its cores; {_HONOURED}", accepted=(False,)),
        "launch.max_restarts": Unread(f"the process of the caller isn't restarted; {_HONOURED}", accepted=(0,)),
    },
)


def run_training(
    system: System, *, seed: int | None = None, log: str | Path | None = None, progress: bool = False
) -> RunSummary:
    """Train a system of one rank in this process, to its target or its limit, and return the run.

    `seed` repeats the run that logged this seed, on the same CPU to the bit; None draws a seed. `log` is the new file
    to write; None means the next runs/SYSTEM/bert/result_<n>.txt. With `progress`, lines about the run go to standard
    error. The clock, the log and the files are the same as those of `bertbench train`, so `judge_logs` and `bertbench
    report` can read them.

    Raises BertbenchError for a system with several ranks (set launch.ranks_per_node to 1, or start `bertbench launch`),
    for missing data, for a loss that isn't finite, and for anything else that ends `bertbench train`. After an
    interruption (KeyboardInterrupt), the log ends as aborted.
    """
    if seed is not None:
        check_whole_number("seed", seed, least=0)
    _check_process(system)
    check_given(system, RUN_TRAINING)
    training, _ = open_data(system)  # before any file is written
    check_start(system)
    notes = list(_notes(system, training.folder))
    files = _new_files(system, None if log is None else Path(log))
    try:
        with _alone(system) as world, RunProgress(system, enabled=progress) as lines:
            for note in notes:
                lines.message(note)
            run_seed = secrets.randbits(SEED_BITS) if seed is None else seed
            begin_attempt(files, None, system, RunOptions())
            files.describe(system, run_seed)
            lines.message(f"{system.name}: 1 rank, seed {run_seed}, log {shown_path(files.log)}")
            train(system, world, run_seed, files, lines, TrainOptions(startup=Startup()))
    finally:
        close_log(files, None)  # removes the files if the clock didn't start
    return read_summary(files.log)


def _check_process(system: System) -> None:
    """Raise an error unless this process can do a run of the system."""
    if system.world_size != 1:
        raise ConfigError(
            f"{system.name} has {system.world_size} ranks, but run_training trains one rank in this process; set "
            "launch.ranks_per_node to 1 (and hardware.number_of_nodes), or start it with "
            f"`bertbench launch {system.argument}`"
        )
    launched = launched_ranks(os.environ)
    if launched and launched.size > 1:
        raise RunError(
            f"this process is rank {launched.rank} of {launched.size} according to its launcher's variables, but "
            "run_training trains a single rank; start it without torchrun or srun, or let those start `bertbench train`"
        )
    if threading.current_thread() is not threading.main_thread():
        raise RunError(
            f"run_training was called in thread {threading.current_thread().name!r}, but signals reach only the main "
            "thread; call it there, or start `bertbench train` as a process"
        )
    if distributed.is_initialized():
        raise RunError(
            "torch.distributed has a process group in this process, but a run makes its own; destroy that one first "
            "(torch.distributed.destroy_process_group)"
        )


def _notes(system: System, data: Path) -> Iterator[str]:
    """Yield notes for the caller before the run. Raises RunError if the machine doesn't have the system's GPU."""
    if unread := unread_line(system, RUN_TRAINING):
        yield unread
    for warning in hardware_differences(system.hardware):
        yield f"warning: {warning}"
    if differs := recipe_differences(system, data):
        yield f"warning: {data} was made with another data.recipe than the system's: {'; '.join(differs)}"


def _new_files(system: System, log: Path | None) -> ResultFiles:
    """Return the files of the run. Raises RunError if the log exists, because the run would be appended to it."""
    if log is not None and log.exists():
        raise RunError(f"{log}: this log already exists; give another name")
    return open_run_files(system, RunOptions(result=log)).files


@contextmanager
def _alone(system: System) -> Iterator[World]:
    """Make this process the only rank within the context, and restore the process afterwards."""
    threads = torch.get_num_threads()
    interfaces = os.environ.get(INTERFACES)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    device, launch = system.launch.device, system.launch
    gpus = [0] if device == "cuda" else []
    limits = Limits(silent_s=_NEVER_S, progress_s=_NEVER_S)
    try:
        with (
            torch.random.fork_rng(gpus),
            join(device, launch.timeout_s, limits=limits, ranks=_ALONE) as world,
        ):
            yield world
    finally:
        if distributed.is_initialized():  # the code in the context failed
            distributed.destroy_process_group()
        torch.set_num_threads(threads)
        for number, handler in handlers.items():
            if handler is not None:  # it was set by Python code, not by C
                signal.signal(number, handler)
        if interfaces is None:
            os.environ.pop(INTERFACES, None)
        else:
            os.environ[INTERFACES] = interfaces
