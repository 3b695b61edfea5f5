"""Do a run on one rank: meet the others, agree on files and seed, train, and say how it ended."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

from bertbench.checkpoint.resumption import find_resumption
from bertbench.common.errors import TARGET_MISSED, ConfigError
from bertbench.common.paths import shown_path
from bertbench.common.terminal import shell_word
from bertbench.config import System
from bertbench.distributed.ranks import Ranks
from bertbench.distributed.rendezvous import leave_log, log_left
from bertbench.distributed.startup import Startup, process_started
from bertbench.distributed.world import World
from bertbench.launch.local import begin_attempt
from bertbench.launch.rank import agreed_seed, as_rank
from bertbench.launch.run_options import RunOptions, Short
from bertbench.launch.variables import differing
from bertbench.machine.describe import hardware_differences
from bertbench.machine.gpu_support import check_gpus
from bertbench.runs.files import ResultFiles
from bertbench.runs.mlperf_log import Run
from bertbench.runs.run_progress import RunProgress
from bertbench.runs.run_summary import read_summary
from bertbench.runs.straggler import straggler_of
from bertbench.training.build import TrainOptions
from bertbench.training.opened import OpenedRun, open_run_files
from bertbench.training.short_run import Profiler, shortened
from bertbench.training.technique import EVERY_STEP, Technique
from bertbench.training.train import train
from compliance.read.source import CannotJudge


def outcome(files: ResultFiles) -> dict[str, object]:
    """Return the outcome of a run, read from its log, for `train --json`."""
    try:
        run = read_summary(files.log)
    except CannotJudge:  # the run never started and wrote no log
        return {"log": None, "status": "not started"}
    return {
        "log": str(files.log),
        "status": run.status,
        **({"not_a_result": run.not_a_result} if run.not_a_result else {}),
        "seed": run.seed,
        "best_accuracy": run.best_accuracy,
        "samples": run.samples,
        "time_to_train_s": run.time_to_train_s,
    }


def run_as_rank(
    system: System,
    ranks: Ranks,
    options: RunOptions,
    announce: Callable[[], None],
    technique: Technique = EVERY_STEP,
) -> int:
    """Run this process as one rank, and return its exit code.

    Rank 0 opens the run's files and calls `announce`, unless the launcher has done both.
    """
    startup = Startup.of_rank(options.began)
    if options.short:
        system = shortened(system, options.short)
    startup.mark("imports")
    with as_rank(system, ranks) as world:
        startup.mark("meeting")
        agree_on_variables(world, options.exported or {})
        profiler = Profiler(world, on=options.short == "profile")
        opened = world.from_all(_opened(system, world, options, technique) if world.leads else None)[0]
        assert opened is not None, "rank 0 opens them"
        files, resumption, code = opened
        if code is not None:
            return code
        seed = resumption.meta.seed if resumption else agreed_seed(world, options.seed)
        if world.leads:
            if not resumption:
                files.describe(system, seed, options.exported, configuration=technique.configuration(system))
            leave_log(world.store, files.log)
            if not options.launched:
                announce()
        _warn(system, ranks)
        with RunProgress(system, enabled=world.leads) as progress:
            progress.message(f"{system.name}: ranks {world.size}, seed {seed}, log {shown_path(files.log)}")
            if resumption:
                progress.message(f"resumes after step {resumption.meta.step}, from {resumption.path}")
            chosen = TrainOptions(resumption, startup, profiler, options.short, options.caches_cleared, technique)
            own_files = files if world.leads else None
            run = train(system, world, seed, own_files, progress, chosen)
            if own_files and options.short == "profile":
                progress.message(profiler.write(files))
            for line in _closing_lines(run, options.short, own_files):
                progress.message(line)
    return 0 if run.reason is None or options.short else TARGET_MISSED


def _opened(system: System, world: World, options: RunOptions, technique: Technique) -> OpenedRun:
    """Return the run's files on rank 0: those that the launcher has opened, or else those that it opens now."""
    if options.launched:
        assert options.result is not None, "the launcher names the log"
        return OpenedRun(ResultFiles(options.result), find_resumption(options.resume, None, options.result.parent))
    if log := log_left(world.store):
        options = replace(options, resume="auto", result=log)
    opened = open_run_files(system, options, technique)
    if opened.code is None:
        began = options.began or process_started()
        begin_attempt(opened.files, opened.resumption, system, replace(options, began=began))
    return opened


def agree_on_variables(world: World, exported: dict[str, str]) -> None:
    """Raise ConfigError if honoured variables differ between ranks; folders may differ between nodes."""
    if problems := [*differing(world.from_all(exported))]:
        raise ConfigError("; ".join([*problems, "export the same on all nodes"]))


def _warn(system: System, ranks: Ranks) -> None:
    """Print warnings about this node."""
    if ranks.local_rank == 0:
        check_gpus(system)
        for warning in hardware_differences(system.hardware):
            print(f"warning: {warning}", file=sys.stderr)


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
