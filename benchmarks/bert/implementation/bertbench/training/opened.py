"""Open the files of a run, new or resumed: once, by the launcher, or by rank 0 if torchrun started the ranks."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mlperf_logging.mllog import constants

from bertbench.checkpoint.resumption import Resumption, ended, find_resumption
from bertbench.common.errors import TARGET_MISSED, BertbenchError, ConfigError, StoppedError, system_reason
from bertbench.common.paths import runs_folder
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.launch.run_options import RunOptions
from bertbench.loading.inputs import open_split
from bertbench.loading.sampler import make_planner
from bertbench.runs.files import ResultFiles, reserve_number
from bertbench.training.technique import EVERY_STEP, Technique, check_resumed
from compliance.read.find import LOG_PATTERN


class OpenedRun(NamedTuple):
    """The files of a run, and how it goes on."""

    files: ResultFiles
    resumption: Resumption | None = None
    """Where the run resumes; None for a new run."""
    code: int | None = None
    """The exit code of a run that has ended before, so that nothing remains to be done."""


def open_run_files(system: System, options: RunOptions, technique: Technique = EVERY_STEP) -> OpenedRun:
    """Return the files of the run that the options ask for, which trains by a technique.

    A new run gets an empty log. Raises ConfigError if the options contradict each other or the interrupted run, or name
    a log that another run has, and CheckpointError if they name no run.
    """
    interrupted = _job_file(options, "current")
    if options.job and not options.short:
        options = _interrupted(interrupted, options)
    if options.resume == "auto" and options.result is not None and (status := ended(options.result)):
        print(f"{options.result}: this run has ended: {status}", file=sys.stderr)
        code = 0 if status == constants.SUCCESS else TARGET_MISSED
        return OpenedRun(ResultFiles(options.result), code=code)
    resumption = _resumption_of(system, options, technique)
    files = resumption.files if resumption else _new_run_files(system, options)
    if options.job:
        _write(interrupted, str(files.log.absolute()))
    return OpenedRun(files, resumption)


def tell_job(options: RunOptions, code: int) -> int:
    """Return the launcher's exit code for a run that ended with `code`.

    In a job, write the run's code for run.sub. The launcher's own is then 0 unless the run failed: srun ends all
    launchers as soon as one has another code, and returns the highest.
    """
    if options.job is None:
        return code
    _write(_job_file(options, "code"), str(code))
    return 0 if code in (TARGET_MISSED, StoppedError.exit_code) else code


def _job_file(options: RunOptions, ending: str) -> Path:
    return runs_folder() / f".job_{options.job}.{ending}"


def _interrupted(file: Path, options: RunOptions) -> RunOptions:
    """Return the options by which a job's interrupted run resumes, if its file names one."""
    log = file.read_text(encoding="utf-8") if file.exists() else ""
    return replace(options, resume="auto", result=Path(log)) if log else options


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({system_reason(error)}); set LOGDIR") from error


def _resumption_of(system: System, options: RunOptions, technique: Technique) -> Resumption | None:
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
    exported = (options.exported or {}).get("SEED")
    if exported is not None and options.seed != meta.seed:
        raise ConfigError(f"SEED={exported}: the resumed run has seed {meta.seed}; unset it")
    resumption.check(system, options.seed, options.allow_config_change)
    check_resumed(resumption, technique, system)
    planner = make_planner(system, open_split(system, "train").entries_N, derive(meta.seed, "data"))
    planner.check_world(meta.nodes, meta.ranks)
    return resumption


def _new_run_files(system: System, options: RunOptions) -> ResultFiles:
    """Return the files of a new run. Its log is made, empty, so that no other run takes its name.

    Without --result, the log has the next free number. Raises ConfigError if another run has the log of --result, if
    the log can't be written, and as `_without_leftovers` does.
    """
    log = options.result
    if log is None:
        return reserve_number(runs_folder(), system.name, options.short)
    if options.resume == "auto" and log.exists():  # its run never started; otherwise it would be resumed
        return _without_leftovers(log, options)
    ResultFiles(log).reserve()
    try:
        return _without_leftovers(log, options)
    except BertbenchError:
        log.unlink()
        raise


def _without_leftovers(log: Path, options: RunOptions) -> ResultFiles:
    """Return the files of a new run with this log, and remove what a run of this name that never started has left.

    Raises ConfigError for a name that only results may have, and for one under which an earlier run left snapshots.
    """
    files = ResultFiles(log)
    if options.short and log.match(LOG_PATTERN):
        raise ConfigError(f"--result {log}: --{options.short} makes no result; choose a name other than {LOG_PATTERN}")
    if files.snapshots.exists():
        raise ConfigError(
            f"{log}: an earlier run of this name left snapshots; resume it with --resume auto, or give another --result"
        )
    if options.resume == "auto" and files.folder.exists():
        files.discard(again=True)
    else:
        files.trace.unlink(missing_ok=True)
    return files
