"""`bertbench train SYSTEM`: make one timed run.

Called directly it starts the system's ranks; started by torchrun or Slurm it is one of them.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from mlperf_logging.mllog import constants

from bertbench.checkpoint.resumption import Resumption, continue_run, ended, find, restored_by_launcher
from bertbench.checkpoint.snapshot_folder import META_NAME
from bertbench.checkpoint.start import check_start
from bertbench.commands import emit, passed_on, say, say_unread, system_of
from bertbench.common.errors import TARGET_MISSED, ConfigError, RunError
from bertbench.common.paths import runs_folder, shown_path
from bertbench.common.terminal import shell_word
from bertbench.config import System
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.ranks import Ranks, withheld_cores
from bertbench.distributed.rendezvous import leave_log, log_left
from bertbench.distributed.startup import LAUNCHED, Startup, process_started
from bertbench.distributed.world import World
from bertbench.launch.rank import agreed_seed, as_rank, ranks_of
from bertbench.launch.variables import RECORD, Variables, differing
from bertbench.loading.inputs import open_data, open_split, recipe_differences
from bertbench.machine.describe import differences
from bertbench.results.files import ResultFiles, reserve
from bertbench.results.mlperf_log import Run
from bertbench.results.power import power_sampled
from bertbench.results.profiling import Profiler
from bertbench.results.progress import RunProgress
from bertbench.run_files.straggler import straggler_of
from bertbench.training.build import Options, make_sampler
from bertbench.training.short_run import Short, shortened
from bertbench.training.train import train
from compliance.read.find import LOG_PATTERN
from compliance.read.log import CannotJudge, read_events
from compliance.read.run import RunFacts


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if the target is reached or a short run is over, 3 if missed, 75 if stopped, 1 or 2 on failure."""
    system = system_of(arguments)
    ranks = ranks_of(system)
    if ranks is not None:
        return _as_rank(system, ranks, arguments)
    files, code = train_once(system, arguments)
    emit(arguments.json, outcome(files))
    return code


def train_once(system: System, arguments: argparse.Namespace, launched: float | None = None) -> tuple[ResultFiles, int]:
    """Make one run with all its ranks on this machine; return its files and exit code.

    `launched` gives the launch time if it differs from this process's start (run_with_docker.sh sets it).
    """
    from bertbench.launch.local import check_startable, run_ranks  # noqa: PLC0415 - ranks start no ranks

    if arguments.allow_config_change and arguments.resume == "never":
        raise ConfigError("--allow-config-change is for a run that resumes; give --resume too, or leave it out")
    os.environ[LAUNCHED] = str(launched) if launched else os.environ.get(LAUNCHED, str(process_started()))
    os.environ[RECORD] = arguments.variables.record()
    if short := arguments.short:
        shortened(system, short)  # raises its errors early
    check_startable(system)
    training, _ = open_data(system)  # report bad data once, not on every rank
    if differs := recipe_differences(system, training.folder):
        say(f"warning: {training.folder} was made by another data.recipe than the system file's: {'; '.join(differs)}")
    check_start(system)
    if arguments.track or arguments.metrics_port:
        from bertbench.report.side_process import check_side_work as check  # noqa: PLC0415 - keeps it out of other runs' start-up

        check(arguments.track, arguments.metrics_port)
    if (code := _over(arguments)) is not None:
        return ResultFiles(arguments.result), code
    resumption = _resumption(system, arguments)
    files = resumption.files if resumption else _reserved(system, arguments)
    if launched is None:  # once for all runs
        say(*arguments.variables.lines)
        say_unread(system, arguments)
    code = run_ranks(system, [arguments.system, *rank_options(arguments, "never")], files, resumption)
    if files.log.exists() and ended(files.log) is None and not short:
        say(_how_to_go_on(system, arguments, files))
    return files, code


def _how_to_go_on(system: System, arguments: argparse.Namespace, files: ResultFiles) -> str:
    """Return how to continue a run that was stopped or failed after its start."""
    if any(files.snapshots.glob(f"*/{META_NAME}")):
        again = ["bertbench", "train", arguments.system, *rank_options(arguments, shown_path(files.log))]
        line = " ".join(shell_word(word, sys.stderr.encoding) for word in again)
        return f"resume from the last snapshot with:\n  {line}"
    return (
        "no snapshot was taken yet, so this run can't be resumed; --set checkpoint.every_steps=N takes one every N "
        "steps"
    )


def outcome(files: ResultFiles) -> dict[str, object]:
    """Return the output of `train --json`, read from the run's log."""
    try:
        facts = RunFacts(read_events(files.log))
    except CannotJudge:  # it never started and wrote no log
        return {"log": None, "status": "not started"}
    return {
        "log": str(files.log),
        "status": facts.status,
        **({"not_a_result": facts.not_a_result} if facts.not_a_result else {}),
        "seed": facts.seed,
        "accuracy": facts.best_accuracy,
        "samples": facts.samples,
        "time_to_train_s": facts.time_to_train_s,
    }


def _reserved(system: System, arguments: argparse.Namespace) -> ResultFiles:
    short = arguments.short
    if arguments.result is None:
        return reserve(runs_folder(), system.name, short)
    files = ResultFiles(arguments.result)
    if short and files.log.match(LOG_PATTERN):
        raise ConfigError(f"--result {files.log}: --{short} makes no result; give it another name than {LOG_PATTERN}")
    if files.snapshots.exists():
        raise RunError(
            f"{files.log}: an earlier run of this name left snapshots; resume it by --resume auto, or give another "
            "--result"
        )
    if arguments.resume == "auto" and files.folder.exists():  # it never started, or it would be resumed
        files.discard(again=True)
    elif not restored_by_launcher():
        files.timeline.unlink(missing_ok=True)
    return files


def _over(arguments: argparse.Namespace) -> int | None:
    """Return the exit code of the run named by `--resume auto --result LOG` if it has ended by itself."""
    status = ended(arguments.result) if arguments.resume == "auto" and arguments.result else None
    if status is None:
        return None
    say(f"{arguments.result}: this run has ended: {status}")
    return 0 if status == constants.SUCCESS else TARGET_MISSED


def _resumption(system: System, arguments: argparse.Namespace) -> Resumption | None:
    if arguments.resume != "never" and (short := arguments.short):
        raise ConfigError(f"--{short} takes a few steps of a new run; leave --resume out")
    resumption = find(arguments.resume, arguments.result, runs_folder() / system.name / "bert")
    if resumption:
        if arguments.result is not None and arguments.result.absolute() != resumption.log.absolute():
            raise ConfigError(
                f"--result {arguments.result}: --resume {arguments.resume} continues the run of {resumption.log} in "
                "its own files; leave --result out"
            )
        meta = resumption.meta
        exported = arguments.variables.values.get("SEED")
        if exported is not None and arguments.seed != meta.seed:
            raise ConfigError(f"SEED={exported}: the resumed run has seed {meta.seed}; unset it")
        resumption.check(system, arguments.seed, arguments.allow_config_change)
        make_sampler(system, open_split(system, "train"), meta.seed).planner.check_world(meta.nodes, meta.ranks)
    return resumption


def rank_options(arguments: argparse.Namespace, resume: str | None = None) -> list[str]:
    """Return the options of every rank of a run; `resume` is the resolved value of --resume."""
    resume, on_bad_sample = resume or arguments.resume, arguments.on_bad_sample
    words = passed_on(
        arguments,
        "seed", "resume", "allow_config_change", "on_bad_sample", "track", "metrics_port",
        resume=None if resume == "never" else resume,
        on_bad_sample=None if on_bad_sample == "fail" else on_bad_sample,
    )  # fmt: skip
    return [*words, *([f"--{arguments.short}"] if arguments.short else [])]


def _beside(files: ResultFiles | None, track: list[str], port: str | None) -> AbstractContextManager[None]:
    """Return the side process, if requested, on the rank that writes the run's files."""
    if not files or not (track or port):
        return nullcontext()
    from bertbench.report.side_process import side_process  # noqa: PLC0415 - keeps it out of other runs' start-up

    return side_process(track, port, files.log.absolute(), runs_folder())


def _as_rank(system: System, ranks: Ranks, arguments: argparse.Namespace) -> int:
    """Run this process as one rank."""
    startup, short = Startup.of_rank(), arguments.short
    if short:
        system = shortened(system, short)
    startup.mark("imports")
    with as_rank(system, ranks) as world:
        startup.mark("meeting")
        _agree(world, arguments.variables)
        profiler = Profiler(world, on=short == "profile")
        if world.leads and (log := log_left(world.store)):
            arguments = argparse.Namespace(**{**vars(arguments), "resume": "auto", "result": log})
        if (over := world.from_all(_over(arguments) if world.leads else None)[0]) is not None:
            return over
        found = _resumption(system, arguments) if world.leads else None
        if found and not restored_by_launcher():
            _record_attempt(found.files)
            continue_run(found, system)
        if resumption := world.from_all(found)[0]:
            seed, files = resumption.meta.seed, resumption.files if world.leads else None
        else:
            seed = agreed_seed(world, arguments.seed)
            files = _reserved(system, arguments) if world.leads else None
            if files:
                _record_attempt(files)
                files.describe(system, seed, arguments.variables.values)
        if files:
            leave_log(world.store, files.log)
        _say_first(system, ranks, arguments)
        with RunProgress(system, enabled=world.leads) as progress:
            progress.message(f"{system.name}: ranks {world.size}, seed {seed}, log {files and shown_path(files.log)}")
            if resumption:
                progress.message(f"resumes after step {resumption.meta.step}, from {resumption.path}")
            options = Options(resumption, arguments.on_bad_sample, startup, profiler, short)
            beside = _beside(files, arguments.track, arguments.metrics_port)
            with power_sampled(system, world, files), beside:
                run = train(system, world, seed, files, progress, options)
            if files and short == "profile":
                progress.message(profiler.write(files.folder))
            for line in _closing_lines(run, short, files):
                progress.message(line)
    return 0 if run.reason is None or short else TARGET_MISSED


def _agree(world: World, variables: Variables) -> None:
    """Print what became of exported variables. Raises ConfigError if ranks have different ones."""
    if problems := [*differing(world.from_all(variables.same_for_all_ranks()))]:
        raise ConfigError("; ".join([*problems, "export the same on all nodes"]))
    if world.leads:
        say(*variables.lines)


def _say_first(system: System, ranks: Ranks, arguments: argparse.Namespace) -> None:
    """Name unread settings, unless the launcher has named them, and warn of what this node lacks."""
    if ranks.rank == 0 and not restored_by_launcher():
        say_unread(system, arguments)
    if ranks.local_rank == 0:
        withheld = withheld_cores(os.environ, ranks, available_cores(), os.cpu_count() or 1)
        say(*(f"warning: {text}" for text in (withheld, *differences(system.hardware)) if text))


def _record_attempt(files: ResultFiles) -> None:
    """Record the start of ranks in the timeline, unless `bertbench launch` did."""
    if not restored_by_launcher():
        with files.open_timeline() as timeline:
            timeline.attempt()


def _closing_lines(finished: Run, short: Short | None, files: ResultFiles | None) -> Iterator[str]:
    """Yield how a run ended, where its log is, and the commands that judge and show it.

    A short run's log ends with `aborted`, so its line says how the smoke test or the profile went.
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
