"""Do a run on one rank: new or resumed, with the files that it writes and the options of `bertbench train`.

`bertbench train` chooses a run's files and checks its options once, in the process that starts this machine's ranks.
Each rank then does the same again, because torchrun and srun start ranks without such a process.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlperf_logging.mllog import constants

from bertbench.checkpoint.resumption import Resumption, continue_run, ended, find_resumption, restored_by_launcher
from bertbench.common.errors import TARGET_MISSED, BertbenchError, ConfigError
from bertbench.common.paths import runs_folder, shown_path
from bertbench.common.terminal import shell_word
from bertbench.config import System
from bertbench.distributed.cores import available_cores
from bertbench.distributed.ranks import Ranks, withheld_cores
from bertbench.distributed.rendezvous import leave_log, log_left
from bertbench.distributed.startup import Startup
from bertbench.distributed.world import World
from bertbench.launch.rank import agreed_seed, as_rank
from bertbench.launch.variables import Variables, differing
from bertbench.loading.inputs import open_split
from bertbench.machine.describe import hardware_differences
from bertbench.machine.gpu_support import check_gpus
from bertbench.results.files import ResultFiles, reserve_number
from bertbench.results.mlperf_log import Run
from bertbench.results.profiling import Profiler
from bertbench.results.run_progress import RunProgress
from bertbench.run_files.straggler import straggler_of
from bertbench.training.build import TrainOptions, make_sampler
from bertbench.training.short_run import Short, shortened
from bertbench.training.train import train
from compliance.read.find import LOG_PATTERN
from compliance.read.log import CannotJudge, read_events
from compliance.read.run import RunFacts


@dataclass(frozen=True)
class RunOptions:
    """How a run differs from a new run with its own seed."""

    seed: int | None = None
    result: Path | None = None
    """The log to write; None takes the next free name."""
    resume: str = "never"
    """`never`, `auto`, or the path of a log, its folder or a snapshot."""
    allow_config_change: bool = False
    short: Short | None = None
    variables: Variables = field(default_factory=Variables)
    """How the variables that the user exported were applied."""


def code_of_ended(options: RunOptions) -> int | None:
    """Return the exit code of the run named by `--resume auto --result LOG`, if it ended and wasn't interrupted."""
    if options.resume != "auto" or options.result is None:
        return None
    status = ended(options.result)
    if status is None:
        return None
    print(f"{options.result}: this run has ended: {status}", file=sys.stderr)
    return 0 if status == constants.SUCCESS else TARGET_MISSED


def resumption_of(system: System, options: RunOptions) -> Resumption | None:
    """Return where the run resumes; None for a new run.

    Raises ConfigError if the options contradict the interrupted run, and CheckpointError if they name no run.
    """
    if options.resume != "never" and options.short:
        raise ConfigError(f"--{options.short} takes a few steps of a new run; leave out --resume")
    resumption = find_resumption(options.resume, options.result, runs_folder() / system.name / "bert")
    if resumption is None:
        return None
    if options.result is not None and options.result.absolute() != resumption.log.absolute():
        raise ConfigError(
            f"--result {options.result}: --resume {options.resume} continues the run of {resumption.log} in "
            "that run's own files; leave out --result"
        )
    meta = resumption.meta
    exported = options.variables.values.get("SEED")
    if exported is not None and options.seed != meta.seed:
        raise ConfigError(f"SEED={exported}: the resumed run has seed {meta.seed}; unset it")
    resumption.check(system, options.seed, options.allow_config_change)
    make_sampler(system, open_split(system, "train"), meta.seed).planner.check_world(meta.nodes, meta.ranks)
    return resumption


def new_files(system: System, options: RunOptions) -> ResultFiles:
    """Reserve and return the files of a new run.

    Raises ConfigError for a name that only results may have, one under which an earlier run left snapshots, and a place
    that can't be written.
    """
    if options.result is None:
        return reserve_number(runs_folder(), system.name, options.short)
    files = ResultFiles(options.result)
    if options.short and files.log.match(LOG_PATTERN):
        raise ConfigError(
            f"--result {files.log}: --{options.short} makes no result; choose a name other than {LOG_PATTERN}"
        )
    if files.snapshots.exists():
        raise ConfigError(
            f"{files.log}: an earlier run of this name left snapshots; resume it with --resume auto, or give another "
            "--result"
        )
    if options.resume == "auto" and files.folder.exists():  # that run never started; otherwise it would be resumed
        files.discard(again=True)
    elif not restored_by_launcher():
        files.timeline.unlink(missing_ok=True)
    return files


def reserved_files(system: System, options: RunOptions) -> ResultFiles:
    """Return the files of a new run whose ranks this process starts, with an empty log.

    Raises the errors of `new_files`, and ConfigError if another run has the log of --result.
    """
    if options.result is None:
        return new_files(system, options)
    never_started = options.resume == "auto" and options.result.exists()
    if never_started:
        return new_files(system, options)
    ResultFiles(options.result).reserve()
    try:
        return new_files(system, options)
    except BertbenchError:
        options.result.unlink()
        raise


def outcome(files: ResultFiles) -> dict[str, object]:
    """Return the outcome of a run, read from its log, for `train --json`."""
    try:
        facts = RunFacts(read_events(files.log))
    except CannotJudge:  # the run never started and wrote no log
        return {"log": None, "status": "not started"}
    return {
        "log": str(files.log),
        "status": facts.status,
        **({"not_a_result": facts.not_a_result} if facts.not_a_result else {}),
        "seed": facts.seed,
        "best_accuracy": facts.best_accuracy,
        "samples": facts.samples,
        "time_to_train_s": facts.time_to_train_s,
    }


def run_as_rank(system: System, ranks: Ranks, options: RunOptions, unread: Callable[[], None]) -> int:
    """Run this process as one rank, and return its exit code; `unread` names the settings that the run doesn't read."""
    startup = Startup.of_rank()
    short = options.short
    if short:
        system = shortened(system, short)
    startup.mark("imports")
    with as_rank(system, ranks) as world:
        startup.mark("meeting")
        agree_on_variables(world, options.variables)
        profiler = Profiler(world, on=short == "profile")
        if world.leads and (log := log_left(world.store)):
            options = replace(options, resume="auto", result=log)
        code = world.from_all(code_of_ended(options) if world.leads else None)[0]
        if code is not None:
            return code
        files: ResultFiles | None = None
        resumption = _continued(system, options) if world.leads else None
        resumption = world.from_all(resumption)[0]
        if resumption:
            seed = resumption.meta.seed
            if world.leads:
                files = resumption.files
        else:
            seed = agreed_seed(world, options.seed)
            if world.leads:
                files = _begun(system, seed, options)
        if files:
            leave_log(world.store, files.log)
        _say_first(system, ranks, unread)
        with RunProgress(system, enabled=world.leads) as progress:
            progress.message(f"{system.name}: ranks {world.size}, seed {seed}, log {files and shown_path(files.log)}")
            if resumption:
                progress.message(f"resumes after step {resumption.meta.step}, from {resumption.path}")
            chosen = TrainOptions(resumption, startup, profiler, short)
            run = train(system, world, seed, files, progress, chosen)
            if files and short == "profile":
                progress.message(profiler.write(files.folder))
            for line in _closing_lines(run, short, files):
                progress.message(line)
    return 0 if run.reason is None or short else TARGET_MISSED


def _continued(system: System, options: RunOptions) -> Resumption | None:
    """Return where the run resumes, after restoring its files to the snapshot; None for a new run."""
    resumption = resumption_of(system, options)
    if resumption and not restored_by_launcher():
        _record_attempt(resumption.files)
        continue_run(resumption, system)
    return resumption


def _begun(system: System, seed: int, options: RunOptions) -> ResultFiles:
    """Return the files of a new run, after writing its configuration."""
    files = new_files(system, options)
    _record_attempt(files)
    files.describe(system, seed, options.variables.values)
    return files


def agree_on_variables(world: World, variables: Variables) -> None:
    """Print how exported variables were applied. Raises ConfigError if they differ between ranks."""
    if problems := [*differing(world.from_all(variables.same_for_all_ranks()))]:
        raise ConfigError("; ".join([*problems, "export the same on all nodes"]))
    if world.leads:
        for line in variables.lines:
            print(line, file=sys.stderr)


def _say_first(system: System, ranks: Ranks, unread: Callable[[], None]) -> None:
    """Name unread settings, unless the launcher has named them, and print warnings about this node."""
    if ranks.rank == 0 and not restored_by_launcher():
        unread()
    if ranks.local_rank == 0:
        check_gpus(system)
        withheld = withheld_cores(os.environ, ranks, available_cores(), os.cpu_count() or 1)
        for warning in (withheld, *hardware_differences(system.hardware)):
            if warning:
                print(f"warning: {warning}", file=sys.stderr)


def _record_attempt(files: ResultFiles) -> None:
    """Record the start of ranks in the timeline, unless `bertbench launch` has recorded it."""
    if not restored_by_launcher():
        with files.open_timeline() as timeline:
            timeline.attempt()


def _closing_lines(finished: Run, short: Short | None, files: ResultFiles | None) -> Iterator[str]:
    """Yield lines that say how a run ended, where its log is, and which commands judge and show it.

    The log of a short run ends with `aborted`, so its line says instead how the smoke test or the profile went.
    """
    if not short:
        yield f"{finished.status}: {finished.reason or 'target reached'}"
    if files and (slow := straggler_of(files.log)):
        yield f"straggler: {slow.text()}"
    if short == "smoke":
        yield "smoke test passed: a few steps of everything ran (no result)"
    elif files and not short:
        log, folder = (shell_word(shown_path(path), sys.stderr.encoding) for path in (files.log, files.log.parent))
        yield f"log     {log}"
        yield f"judge   bertbench judge {log}"
        yield f"report  bertbench report {folder}"
