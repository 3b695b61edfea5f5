"""Define the command `launch`: one or more runs of a system, on this machine or with Slurm or docker."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bertbench.cli.arguments import add_flag, add_number, add_path, emit, say, system_of
from bertbench.cli.running import add_train_arguments, run_here, run_options, train, train_words
from bertbench.common.errors import TARGET_MISSED, ConfigError
from bertbench.distributed.ranks import launched_ranks

if TYPE_CHECKING:
    from bertbench.config import System
    from bertbench.launch.elsewhere import JobStart


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`, the number of runs and the place."""
    add_train_arguments(parser)
    parser.epilog = (
        f"{parser.epilog} With --on slurm, options after -- are for sbatch: bertbench launch SYSTEM --on slurm -- "
        "--partition=NAME"
    )
    add_number(parser, "--runs", "N", "number of runs (default: NEXP, or 1; a submission needs 10)")
    parser.add_argument(
        "--on",
        choices=["local", "slurm", "docker"],
        default="local",
        help="where the ranks run (default: this machine)",
    )
    add_flag(parser, "--dry-run", "print the exact commands instead of running them")
    # options for run.sub, which the help doesn't list:
    add_path(parser, "--close", "LOG", argparse.SUPPRESS)  # ends the log of a run whose ranks are gone
    parser.add_argument("--reason", help=argparse.SUPPRESS)  # the cause that --close writes


def launch(arguments: argparse.Namespace) -> int:
    """Run a system one or more times, here or on a cluster; return the highest exit code of the runs.

    A run that misses its target doesn't keep the next one from starting.
    """
    if arguments.close is not None:
        return _close(arguments)
    if arguments.reason is not None:
        raise ConfigError("--reason: is the cause that --close writes; add --close LOG, or leave it out")
    names_one_run = (
        arguments.seed is not None or arguments.result is not None or arguments.resume not in ("auto", "never")
    )
    in_a_job = arguments.passed.job is not None
    if in_a_job and (arguments.on != "local" or arguments.dry_run or arguments.runs > 1):
        raise ConfigError(
            "run.sub takes the options of `bertbench train`; leave out --on and --dry-run, and set NEXP, not --runs"
        )
    if arguments.runs > 1 and names_one_run:
        raise ConfigError(
            f"{arguments.variables.runs_from} with --seed, --result or --resume PATH would make the same run several "
            "times; leave one of them out"
        )
    if arguments.sbatch_options and arguments.on != "slurm":
        options = " ".join(arguments.sbatch_options)
        raise ConfigError(f"{options}: words after -- are options for sbatch; add --on slurm, or leave them out")
    from bertbench.launch.elsewhere import ON_SLURM
    from bertbench.launch.run_options import run_reads
    from compliance import runs_per_result

    modes = [run_reads(arguments.short)]
    if arguments.on == "slurm":
        modes.append(ON_SLURM)
    system = system_of(arguments, *modes)

    here = arguments.on == "local" and not arguments.dry_run
    if here and (ranks := launched_ranks(os.environ)):  # torchrun started one of these per rank
        if arguments.runs > 1 and ranks.size > 1:
            raise ConfigError(
                f"{arguments.variables.runs_as_typed(arguments.runs)}: torchrun starts the ranks of one run; start it "
                "once for each run, or set it to 1"
            )
        return train(arguments)
    if arguments.runs >= runs_per_result("bert") and "submitter" not in system.hardware.model_fields_set:
        say(
            f"warning: hardware.submitter isn't set, so the logs name {system.hardware.submitter!r}; set it before "
            "runs that you will package"
        )
    return _launch_here(arguments, system) if here else _launch_elsewhere(arguments, system)


def _launch_here(arguments: argparse.Namespace, system: "System") -> int:
    from bertbench.training.rank_run import outcome

    outcomes = []
    codes = []
    for number in range(arguments.runs):
        if arguments.runs > 1:
            say(f"run {number + 1} of {arguments.runs}")
        files, code = run_here(system, arguments, run_options(arguments), again=number > 0)
        if files is not None:
            outcomes.append(outcome(files))
        codes.append(code)
        if code not in (0, TARGET_MISSED):
            break
    emit(arguments, outcomes)
    return max(codes)


def _launch_elsewhere(arguments: argparse.Namespace, system: "System") -> int:
    """Print the commands, or run them."""
    from bertbench.launch.command_lines import Job
    from bertbench.launch.elsewhere import job_start

    if arguments.result is not None:
        raise ConfigError("--result names a file on this machine; set LOGDIR to choose where results go elsewhere")
    asked_runs = arguments.variables.runs_as_typed(arguments.runs)
    words = train_words(arguments, _resume_from_anywhere(arguments.resume))
    name_or_path = system.argument if system.argument == system.name else str(Path(arguments.system).absolute())
    job = Job(system, name_or_path, words, arguments.runs, arguments.variables, arguments.sbatch_options)
    start = job_start(job, arguments.on)
    if arguments.on == "local" and arguments.runs > 1 and len(start.commands) > 1:
        say(f"{asked_runs}: these commands start one run; repeat them for each run")
    say(*arguments.variables.lines)
    if arguments.dry_run:
        _print_start(arguments, start)
        return 0
    return start.run()


def _resume_from_anywhere(resume: str) -> str:
    """Return the value of --resume; a path is made absolute, so that it is right in any working directory."""
    return resume if resume in ("auto", "never") else str(Path(resume).absolute())


def _print_start(arguments: argparse.Namespace, start: "JobStart") -> None:
    content = {"commands": start.lines, "variables": start.variables}
    emit(arguments, content, start.text())


def _close(arguments: argparse.Namespace) -> int:
    """End the log of a run whose ranks are gone, for run.sub."""
    from bertbench.launch.local import close_log
    from bertbench.runs.files import ResultFiles

    close_log(ResultFiles(arguments.close), arguments.reason or "all ranks have exited")
    return 0
