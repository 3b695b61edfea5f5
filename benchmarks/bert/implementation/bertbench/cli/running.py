"""The commands `train` and `preflight`, which run as one rank of a system, or start all its ranks on this machine."""

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

from bertbench.cli.arguments import (
    add_flag,
    add_path,
    add_starting_weights,
    add_system_arguments,
    emit,
    passed_on,
    say,
    say_unread,
    seed,
    system_of,
)
from bertbench.common.errors import ConfigError, StoppedError

if TYPE_CHECKING:
    from bertbench.config import System
    from bertbench.results.files import ResultFiles
    from bertbench.training.rank_run import RunOptions

_LEAST_GBIT = {"cuda": 100.0, "cpu": 0.0}
"""The least bandwidth by device. NCCL exceeds 100 Gbit/s over a current network card, but not over a fallback socket or
a bad cable."""


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, the seed and the output."""
    from bertbench.launch.variables import SYSTEM_VARIABLES

    parser.epilog = (
        "Variables that published submissions export, such as DGXSYSTEM, NEXP, SEED and LR, take effect, or are "
        "refused by name (docs/running.md). An argument overrides a variable."
    )
    add_starting_weights(parser)
    parser.add_argument(
        "--seed",
        type=seed,
        help="random seed; the seed of a logged run repeats that run, bit for bit on a CPU (default: chosen at random)",
    )
    add_path(
        parser,
        "--result",
        "FILE",
        "log to write (default: the next runs/SYSTEM/bert/result_<n>.txt; LOGDIR replaces runs/)",
    )
    parser.add_argument(
        "--resume", default="never", metavar="auto|never|PATH",
        help="resume an interrupted run from its last snapshot, or from step 0 if it has none: auto resumes the run of "
        "--result, or the system's latest, and starts a new run if that one was not interrupted; PATH is a log, its "
        "folder or a snapshot (default: never)",
    )  # fmt: skip
    add_flag(parser, "--allow-config-change", "resume although the configuration has changed")
    group = parser.add_mutually_exclusive_group()
    for short, text in (
        ("smoke", "train a few steps and evaluate, to check the machine and the system file"),
        ("profile", "profile a few steps after warm-up: a trace and a table of times"),
    ):
        help_text = f"{text}; not a result (runs/SYSTEM/{short}/)"
        group.add_argument(f"--{short}", action="store_const", dest="short", const=short, help=help_text)
    add_system_arguments(parser, positional=True, named_by=SYSTEM_VARIABLES)


def train(arguments: argparse.Namespace) -> int:
    """Make one timed run; return 0 if it reaches the target or is a short run, 3 if it misses it, 75 if it is stopped.

    Called directly, it starts the system's ranks. Started by torchrun or Slurm, it is one of them.
    """
    system = system_of(arguments)
    from bertbench.launch.rank import ranks_of
    from bertbench.training.rank_run import outcome, run_as_rank

    ranks = ranks_of(system)
    if ranks is not None:
        return run_as_rank(system, ranks, run_options(arguments), unread=lambda: say_unread(system, arguments))
    files, code = run_here(system, arguments)
    emit(arguments.json, outcome(files))
    return code


def run_options(arguments: argparse.Namespace) -> "RunOptions":
    """Return the run's options in the form in which code outside cli/ takes them."""
    from bertbench.training.rank_run import RunOptions

    return RunOptions(
        seed=arguments.seed,
        result=arguments.result,
        resume=arguments.resume,
        allow_config_change=arguments.allow_config_change,
        short=arguments.short,
        variables=arguments.variables,
    )


def run_here(
    system: "System", arguments: argparse.Namespace, launched: float | None = None
) -> tuple["ResultFiles", int]:
    """Make one run with all its ranks on this machine; return its files and exit code.

    `launched` is the launch time if it isn't this process's start. run_with_docker.sh gives it in a variable.
    """
    from bertbench.checkpoint.resumption import ended
    from bertbench.checkpoint.start import check_start
    from bertbench.distributed.startup import LAUNCHED, process_started
    from bertbench.launch.local import check_startable, run_ranks
    from bertbench.launch.variables import RECORD
    from bertbench.loading.inputs import open_data, recipe_differences
    from bertbench.results.files import ResultFiles
    from bertbench.training.rank_run import code_of_ended, reserved_files, resumption_of
    from bertbench.training.short_run import shortened

    if arguments.allow_config_change and arguments.resume == "never":
        raise ConfigError("--allow-config-change is for a run that resumes; give --resume too, or leave it out")
    os.environ[LAUNCHED] = str(launched) if launched else os.environ.get(LAUNCHED, str(process_started()))
    os.environ[RECORD] = arguments.variables.record()
    if arguments.short:
        shortened(system, arguments.short)  # raises its errors before the ranks start
    check_startable(system)
    training, _ = open_data(system)  # report bad data once, not on every rank
    if differs := recipe_differences(system, training.folder):
        say(
            f"warning: {training.folder} was made with another data.recipe than the system file's: {'; '.join(differs)}"
        )
    check_start(system)
    options = run_options(arguments)
    code = code_of_ended(options)
    if code is not None:
        return ResultFiles(arguments.result), code
    resumption = resumption_of(system, options)
    files = resumption.files if resumption else reserved_files(system, options)
    if launched is None:  # print once for all runs
        say(*arguments.variables.lines)
        say_unread(system, arguments)
    code = run_ranks(system, [arguments.system, *rank_words(arguments, "never")], files, resumption)
    if files.log.exists() and ended(files.log) is None and not arguments.short:
        say(_how_to_go_on(arguments, files))
    return files, code


def rank_words(arguments: argparse.Namespace, resume: str | None = None) -> list[str]:
    """Return the options for each rank of a run; `resume` replaces the value of --resume."""
    resume = resume or arguments.resume
    words = passed_on(
        arguments,
        "seed", "resume", "allow_config_change",
        resume=None if resume == "never" else resume,
    )  # fmt: skip
    if arguments.short:
        words.append(f"--{arguments.short}")
    return words


def _how_to_go_on(arguments: argparse.Namespace, files: "ResultFiles") -> str:
    """Return how to continue a run that was stopped or failed after its start."""
    from bertbench.checkpoint.snapshot_folder import META_NAME
    from bertbench.common.paths import shown_path
    from bertbench.common.terminal import shell_word

    if any(files.snapshots.glob(f"*/{META_NAME}")):
        again = ["bertbench", "train", arguments.system, *rank_words(arguments, shown_path(files.log))]
        line = " ".join(shell_word(word, sys.stderr.encoding) for word in again)
        return f"resume from the last snapshot with:\n  {line}"
    return (
        "no snapshot was taken yet, so this run can't be resumed; --set checkpoint.every_steps=N takes one every N "
        "steps"
    )


def add_preflight_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and the least bandwidth that it needs."""
    parser.add_argument(
        "--min-gbit", type=float, metavar="G",
        help="minimum all-reduce bandwidth in Gbit/s, as nccl-tests counts it "
        f"(default: {_LEAST_GBIT['cuda']:g} on GPUs, none on CPUs)",
    )  # fmt: skip
    add_starting_weights(parser)
    add_system_arguments(parser, positional=True)


def preflight(arguments: argparse.Namespace) -> int:
    """Check an allocation before a run; return 0 without problems, else 1, and print a table that locates them.

    Called directly, it starts the system's ranks. Started by torchrun or Slurm, it is one of them.
    """
    system = system_of(arguments)
    from bertbench.launch.allocation import check_allocation
    from bertbench.launch.rank import as_rank, ranks_of

    ranks = ranks_of(system)
    if ranks is None:
        return _preflight_here(system, arguments)
    least_gbit = _LEAST_GBIT[system.launch.device] if arguments.min_gbit is None else arguments.min_gbit
    with as_rank(system, ranks) as world:
        allocation = check_allocation(system, world, least_gbit)
        if world.leads:
            emit(arguments.json, allocation.as_json(), *allocation.lines())
            sys.stdout.flush()
    return 1 if allocation.problems else 0


def _preflight_here(system: "System", arguments: argparse.Namespace) -> int:
    """Start this machine's ranks; they print the answer."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from bertbench.launch.local import agent_of, check_startable

    ranks_per_node = system.launch.ranks_per_node
    name = shlex.quote(system.argument)
    check_startable(
        system,
        f"start it in an allocation with `srun --mpi=none --ntasks-per-node={ranks_per_node} bertbench preflight "
        f"{name}`, or by torchrun on each node (docs/running.md)",
    )
    options = passed_on(arguments, "min_gbit", "json")
    try:
        agent_of(system)("-P", "-m", "bertbench", "preflight", arguments.system, *options)
    except SignalException as stopped:
        say(f"bertbench: {StoppedError.SIGN} {stopped.sigval.name}; all ranks stopped")
        return 128 + int(stopped.sigval)
    except ChildFailedError as failed:
        return max(1, *(failure.exitcode for failure in failed.failures.values()))
    return 0
