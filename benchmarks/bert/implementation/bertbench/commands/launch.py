"""`bertbench launch SYSTEM`: run a system one or more times in sequence, here or on a cluster."""

import argparse
import shlex
import subprocess
import sys
import time

from bertbench.commands import emit, say, system_of, train
from bertbench.common.children import outside
from bertbench.common.errors import TARGET_MISSED, ConfigError, RunError, system_reason
from bertbench.common.terminal import shell_word
from bertbench.config import System
from bertbench.launch import kubernetes
from bertbench.launch.command_lines import (
    CommandLine,
    Job,
    docker_command,
    slurm_command,
    torchrun_lines,
    torchrun_variables,
)
from bertbench.launch.rank import ranks_of
from bertbench.results.files import ResultFiles

_RUNS_OF_A_RESULT = 10  # of BERT, by MLPerf's training rules


def run(arguments: argparse.Namespace) -> int:
    """Return the highest exit code of the runs; a run that misses its target doesn't stop the next."""
    if arguments.close is not None:
        from bertbench.launch.local import close_log  # noqa: PLC0415 - a rank that srun starts closes none

        close_log(ResultFiles(arguments.close), arguments.reason or "the ranks are gone")
        return 0
    if arguments.reason is not None:
        raise ConfigError("--reason: is the cause that --close writes; add --close LOG, or leave it out")
    if arguments.kind is not None and arguments.on != "kubernetes":
        raise ConfigError(f"--kind {arguments.kind}: is for --on kubernetes; add that, or leave --kind out")
    one = arguments.seed is not None or arguments.result is not None or arguments.resume not in ("auto", "never")
    if arguments.runs > 1 and one:
        raise ConfigError(
            f"{arguments.variables.runs_from} with --seed, --result or --resume PATH would make the same run several "
            "times; leave one of them out"
        )
    if arguments.resolve is not None:
        _resolve(arguments)
        return 0
    here = arguments.on == "local" and not arguments.dry_run
    system = system_of(arguments)
    if here and ranks_of(system) is not None:  # torchrun or Slurm started one of these per rank
        return train.run(arguments)
    if arguments.runs >= _RUNS_OF_A_RESULT and "submitter" not in system.hardware.model_fields_set:
        say(
            f"warning: hardware.submitter isn't set, so the logs name {system.hardware.submitter!r}; set it before "
            "runs that you will package"
        )
    if here:
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


def _resolve(arguments: argparse.Namespace) -> None:
    """Write, a line each: the system, what was honoured, and the arguments that variables became. run.sub reads them.

    Raises ConfigError for arguments that choose a place or a number of runs: run.sub is in a job.
    """
    counts_runs = arguments.runs > 1 and arguments.variables.runs_from == "--runs"
    if arguments.on != "local" or arguments.dry_run or counts_runs:
        raise ConfigError(
            "run.sub takes the options of `bertbench train`; leave out --on, --dry-run and --runs, set NEXP"
        )
    say(*arguments.variables.lines)
    lines = [arguments.system, arguments.variables.record(), *arguments.variables.words]
    try:
        arguments.resolve.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{arguments.resolve}: cannot be written ({system_reason(error)}); set LOGDIR") from error


def _elsewhere(arguments: argparse.Namespace, system: System) -> int:
    """Print the commands, or run them."""
    if arguments.result is not None:
        raise ConfigError("--result names a file on this machine; set LOGDIR to choose where results go elsewhere")
    job = Job(system, arguments.system, train.rank_options(arguments), arguments.runs, arguments.variables)
    text: str | None = None
    variables: dict[str, str] = {}
    if arguments.on == "kubernetes":
        if job.runs > 1:
            raise ConfigError(f"{_runs_of(arguments)}: on kubernetes a job is one run; create the job once per run")
        text = kubernetes.manifest(job, arguments.kind or "trainjob")
        commands = [CommandLine(["kubectl", "create", "--filename", "-"], {})]
    elif arguments.on == "slurm":
        commands = [slurm_command(job)]
    elif arguments.on == "docker":
        commands = [docker_command(job)]
    else:
        variables = torchrun_variables()
        commands = [CommandLine(line, {}) for line in torchrun_lines(job)]
        if job.runs > 1 and len(commands) > 1:
            say(f"{_runs_of(arguments)}: the lines start one run; start them once for each run")
    say(*arguments.variables.lines)
    if arguments.dry_run:
        lines = [command.line() for command in commands]
        content = {"commands": lines, "variables": variables, "input": text}
        emit(arguments.json, content, _shown(lines, variables, text))
        return 0
    command = commands[0]
    try:
        environment = {**outside(), **command.variables}
        return subprocess.run(command.words, input=text, text=True, check=False, env=environment).returncode
    except FileNotFoundError as error:
        raise RunError(
            f"found no {command.words[0]} on this machine; start this where it is installed, or see --dry-run"
        ) from error


def _runs_of(arguments: argparse.Namespace) -> str:
    """Return what asks for several runs, as a user typed it."""
    named = arguments.variables.runs_from
    return f"{named} {arguments.runs}" if named == "--runs" else named


def _shown(commands: list[list[str]], variables: dict[str, str], text: str | None) -> str:
    if text:  # the command as a comment, because the output is the manifest
        return f"# {shlex.join(commands[0])}\n{text}".removesuffix("\n")
    exports = [f"export {shlex.join(f'{name}={value}' for name, value in variables.items())}"] if variables else []
    # the reader sets $MASTER_ADDR, so it alone isn't quoted
    return "\n".join(
        [
            *exports,
            *(
                " ".join(
                    word if word.endswith("=$MASTER_ADDR") else shell_word(word, sys.stdout.encoding)
                    for word in command
                )
                for command in commands
            ),
        ]
    )
