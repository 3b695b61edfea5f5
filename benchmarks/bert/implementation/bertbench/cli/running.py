"""The commands `train` and `preflight`, which run as one rank of a system, or start all its ranks on this machine."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
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
from bertbench.common.paths import shown_path
from bertbench.common.reads import Reads
from bertbench.distributed.ranks import launched_node, launched_ranks

if TYPE_CHECKING:
    from bertbench.config import System
    from bertbench.launch.run_options import RunOptions
    from bertbench.runs.files import ResultFiles
    from bertbench.training.technique import Technique

_LEAST_GBIT = {"cuda": 100.0, "cpu": 0.0}
"""The least bandwidth by device. NCCL exceeds 100 Gbit/s over a current network card, but not over a fallback socket or
a bad cable."""


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, the seed and the output."""
    from bertbench.launch.run_options import TRAIN
    from bertbench.launch.variables import SYSTEM

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
    add_system_arguments(parser, TRAIN, positional=True, named_by=SYSTEM)


def train(arguments: argparse.Namespace) -> int:
    """Make one timed run; return 0 if it reaches the target or is a short run, 3 if it misses it, 75 if it is stopped.

    Called directly, it starts the ranks of this machine. Started by torchrun, it is one of them.
    """
    from bertbench.launch.run_options import run_reads

    return train_system(system_of(arguments, run_reads(arguments.short)), arguments)


def train_system(
    system: "System",
    arguments: argparse.Namespace,
    technique: "Technique | None" = None,
    rank_words: Sequence[str] = (),
) -> int:
    """Make one run of `train`, by a technique if one is given; return the exit code.

    `rank_words` are the words with which `bertbench` runs one rank; without any, they are those of `train`.
    """
    from bertbench.training.rank_run import outcome, run_as_rank
    from bertbench.training.technique import EVERY_STEP

    technique = technique or EVERY_STEP
    options = run_options(arguments)
    ranks = launched_ranks(os.environ)
    if ranks is not None:
        return run_as_rank(system, ranks, options, lambda: _announce(system, arguments), technique)
    options = replace(options, rank_words=list(rank_words))
    files, code = run_here(system, arguments, options, technique=technique)
    if files is not None:
        emit(arguments, outcome(files))
    return code


def run_options(arguments: argparse.Namespace) -> "RunOptions":
    """Return the run's options in one record: those that a launcher passes on, or else the command line's."""
    passed: RunOptions = arguments.passed
    if passed.launched:
        return passed
    return replace(
        passed,
        system=arguments.system,
        overrides=list(map(str, arguments.overrides)),
        seed=arguments.seed,
        result=arguments.result,
        resume=arguments.resume,
        allow_config_change=arguments.allow_config_change,
        short=arguments.short,
        exported=arguments.variables.values,
    )


def _announce(system: "System", arguments: argparse.Namespace) -> None:
    """Say what the exported variables changed, and which of the system's settings the run doesn't read."""
    say(*arguments.variables.lines)
    say_unread(system, arguments.reads)


def run_here(
    system: "System",
    arguments: argparse.Namespace,
    options: "RunOptions",
    again: bool = False,
    technique: "Technique | None" = None,
) -> tuple["ResultFiles | None", int]:
    """Make one run with this machine's ranks; return its exit code, and its files unless other nodes have them.

    What can be refused before ranks start is refused here. `again` says that this process has made a run before.
    """
    from bertbench.checkpoint.resumption import ended
    from bertbench.checkpoint.start import check_start
    from bertbench.distributed.startup import process_started
    from bertbench.launch.local import check_startable, run_ranks, run_ranks_of_node
    from bertbench.loading.inputs import open_data, recipe_differences
    from bertbench.training.opened import open_run_files, tell_job
    from bertbench.training.short_run import shortened
    from bertbench.training.technique import EVERY_STEP

    if options.allow_config_change and options.resume == "never":
        raise ConfigError("--allow-config-change is for a run that resumes; give --resume too, or leave it out")
    if options.short:
        shortened(system, options.short)
    node = launched_node(os.environ)
    check_startable(system, node)
    options = replace(options, began=time.time() if again else options.began or process_started())
    if node and node.number:
        return None, run_ranks_of_node(system, options, node)
    training, _ = open_data(system)
    if differs := recipe_differences(system, training.folder):
        say(
            f"warning: {training.folder} was made with another data.recipe than the system file's: {'; '.join(differs)}"
        )
    check_start(system)
    files, resumption, code = open_run_files(system, options, technique or EVERY_STEP)
    if code is not None:
        return files, tell_job(options, code)
    if not again:
        _announce(system, arguments)
    code = run_ranks(system, options, files, resumption, node)
    resumes_by_itself = options.job is not None
    if files.log.exists() and ended(files.log) is None and not options.short and not resumes_by_itself:
        say(_how_to_go_on(arguments, files, options.rank_words or ["train", arguments.system]))
    return files, tell_job(options, code)


def train_words(arguments: argparse.Namespace, resume: str | None = None) -> list[str]:
    """Return the options as words for another command line; `resume` replaces the value of --resume."""
    resume = resume or arguments.resume
    words = passed_on(
        arguments,
        "seed", "resume", "allow_config_change",
        resume=None if resume == "never" else resume,
    )  # fmt: skip
    if arguments.short:
        words.append(f"--{arguments.short}")
    return words


def _how_to_go_on(arguments: argparse.Namespace, files: "ResultFiles", command: Sequence[str]) -> str:
    """Return how to continue a run of a command that was stopped or failed after its start."""
    from bertbench.checkpoint.snapshot_folder import META_NAME
    from bertbench.common.terminal import shell_word

    if any(files.snapshots.glob(f"*/{META_NAME}")):
        again = ["bertbench", *command, *train_words(arguments, shown_path(files.log))]
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
    add_system_arguments(parser, Reads("preflight"), positional=True)


def preflight(arguments: argparse.Namespace) -> int:
    """Check an allocation before a run; return 0 without problems, else 1, and print a table that locates them.

    Called directly, it starts the system's ranks. Started by torchrun, it is one of them.
    """
    system = system_of(arguments)
    from bertbench.launch.allocation import check_allocation
    from bertbench.launch.rank import as_rank

    ranks = launched_ranks(os.environ)
    if ranks is None:
        return _preflight_here(system, arguments)
    least_gbit = _LEAST_GBIT[system.launch.device] if arguments.min_gbit is None else arguments.min_gbit
    with as_rank(system, ranks) as world:
        allocation = check_allocation(system, world, least_gbit)
        if world.leads:
            emit(arguments, allocation.as_json(), *allocation.lines())
            sys.stdout.flush()
    return 1 if allocation.problems else 0


def _preflight_here(system: "System", arguments: argparse.Namespace) -> int:
    """Start this machine's ranks; they print the answer."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from bertbench.launch.agent import agent_of
    from bertbench.launch.local import check_startable

    name = shlex.quote(system.argument)
    elsewhere = f"start `bertbench preflight {name}` by torchrun on each of them (docs/running.md)"
    check_startable(system, elsewhere=elsewhere)
    options = passed_on(arguments, "min_gbit", "json")
    try:
        agent_of(system)("-P", "-m", "bertbench", "preflight", arguments.system, *options)
    except SignalException as stopped:
        say(f"bertbench: {StoppedError.SIGN} {stopped.sigval.name}; all ranks stopped")
        return 128 + int(stopped.sigval)
    except ChildFailedError as failed:
        return max(1, *(failure.exitcode for failure in failed.failures.values()))
    return 0
