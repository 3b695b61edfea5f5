"""`bertbench launch SYSTEM`: run a system one or more times in sequence, here or on a cluster."""

import argparse
import os
import shlex
import subprocess
import sys
import time

from bertbench.commands import emit, say, system_of, train
from bertbench.common.children import outside
from bertbench.common.errors import TARGET_MISSED, ConfigError, RunError
from bertbench.common.terminal import shell_word
from bertbench.config import System
from bertbench.distributed.rendezvous import launched_ranks
from bertbench.launch import docker, kubernetes, slurm, torchrun
from bertbench.launch.job import Job
from bertbench.results.files import ResultFiles

_RUNS_OF_A_RESULT = 10  # of BERT, by MLPerf's training rules


def run(arguments: argparse.Namespace) -> int:
    """Return the highest exit code of the runs; a run that misses its target doesn't stop the next."""
    if arguments.close is not None:
        from bertbench.launch.local import close_log  # noqa: PLC0415 - a rank that srun starts closes none

        close_log(ResultFiles(arguments.close), arguments.reason)
        return 0
    one = arguments.seed is not None or arguments.result is not None or arguments.resume not in ("auto", "never")
    if arguments.runs > 1 and one:
        raise ConfigError(
            "--runs with --seed, --result or --resume PATH would make the same run several times; leave one of them out"
        )
    if launched_ranks(os.environ) is not None:  # torchrun or Slurm started one of these per rank
        return train.run(arguments)
    system = system_of(arguments)
    if arguments.runs >= _RUNS_OF_A_RESULT and "submitter" not in system.hardware.model_fields_set:
        say(
            f"warning: hardware.submitter isn't set, so the logs name {system.hardware.submitter!r}; set it before "
            "runs that you will package"
        )
    if arguments.on == "local" and not arguments.dry_run:
        return _here(arguments, system)
    return _elsewhere(arguments, system)


def _here(arguments: argparse.Namespace, system: System) -> int:
    outcomes, codes = [], []
    for number in range(arguments.runs):
        if arguments.runs > 1:
            say(f"run {number + 1} of {arguments.runs}")
        files, code = train.train_once(system, arguments, time.time() if number else None)
        outcomes.append(train.outcome(files))
        codes.append(code)
        if code not in (0, TARGET_MISSED):
            break
    emit(arguments.json, outcomes)
    return max(codes)


def _elsewhere(arguments: argparse.Namespace, system: System) -> int:
    """Print the commands, or run them."""
    if arguments.result is not None:
        raise ConfigError("--result names a file on this machine; set LOGDIR to choose where results go elsewhere")
    job = Job(system, arguments.system, train.rank_options(arguments), arguments.runs)
    text: str | None = None
    if arguments.on == "kubernetes":
        if job.runs > 1:
            raise ConfigError("--runs: on kubernetes a job is one run; create the job once per run")
        text = kubernetes.manifest(job, arguments.kind)
        commands = [["kubectl", "create", "--filename", "-"]]
    elif arguments.on == "slurm":
        commands = [slurm.command(job)]
    elif arguments.on == "docker":
        commands = [docker.command(job)]
    else:
        commands = torchrun.commands(job)
    if arguments.dry_run:
        emit(arguments.json, {"commands": commands, "input": text}, _shown(commands, text))
        return 0
    try:
        return subprocess.run(commands[0], input=text, text=True, check=False, env=outside()).returncode
    except FileNotFoundError as error:
        raise RunError(
            f"found no {commands[0][0]} on this machine; start this where it is installed, or see --dry-run"
        ) from error


def _shown(commands: list[list[str]], text: str | None) -> str:
    if text:  # the command as a comment, because the output is the manifest
        return f"# {shlex.join(commands[0])}\n{text}".removesuffix("\n")
    # the reader sets $MASTER_ADDR, so it alone isn't quoted
    return "\n".join(
        " ".join(word if word.endswith("=$MASTER_ADDR") else shell_word(word, sys.stdout.encoding) for word in command)
        for command in commands
    )
