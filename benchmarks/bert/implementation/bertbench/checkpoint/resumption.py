"""Find the run and snapshot that `--resume` names, and restore the run's files to that moment."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlperf_logging.mllog import constants

from bertbench.checkpoint.snapshot_folder import Meta, drop_unfinished, newest, to_disk, verified
from bertbench.common.errors import CheckpointError, ConfigError
from bertbench.common.json_object import differences_by_name, read_object
from bertbench.common.system_faults import is_systems, unreadable
from bertbench.config import System
from bertbench.config.layout import Parallel
from bertbench.runs.files import ResultFiles
from bertbench.runs.mlperf_log import CLOCK_SET, INTERRUPTED, MlperfLog

if TYPE_CHECKING:
    from compliance.read.log import Event

RESUMED = "resumed"
"""Key of the log's event for a resumption; its value counts resumptions."""
# Settings that may differ without --allow-config-change: names, how ranks are started, and how they divide the model.
# Whether the number of ranks may differ depends on data.balance (balance/plan.py). No system file states a technique,
# which training/technique.py compares.
_FREE = ("name", "description", "source", "checkpoint", "parallel", "technique")
_FREE_LAUNCH = (
    "ranks_per_node", "port", "clear_caches", "timeout_s", "stall_timeout_s", "progress_timeout_s", "bind_cores",
    "walltime_minutes", "max_restarts",
)  # fmt: skip
# Settings whose effect is stored in a snapshot. After its first step, a run continues with what the snapshot holds, not
# with what the configuration says.
_HELD = ("model.checkpoint", "model.initial_weights", "model.initializer_range", "precision.initial_loss_scale")


@dataclass(frozen=True)
class Resumption:
    """A run to resume."""

    log: Path
    path: Path
    meta: Meta

    @property
    def files(self) -> ResultFiles:
        """Return the run's own files, in which it continues."""
        return ResultFiles(self.log)

    def changes(self, system: System) -> list[str]:
        """Return the changed configuration fields, one line each."""
        return list(self._changes_by_setting(system).values())

    def _changes_by_setting(self, system: System) -> dict[str, str]:
        then = self.meta.config
        now = system.model_dump(mode="json", by_alias=True)
        data = then["data"]
        data_parallel_ranks = self.meta.ranks // (self._parallel.tensor * self._parallel.pipeline)
        batch = data["global_batch_size"] or data["local_batch"] * data_parallel_ranks
        return differences_by_name(_compared(then, batch), _compared(now, system.global_batch_size))

    def keeps_arithmetic(self, system: System) -> bool:
        """Return whether the run continues with the arithmetic that it began with.

        A changed configuration may ask for another arithmetic or forbid this one, and a split model can't use all that
        a whole one can, such as CUDA graphs.
        """
        return self._parallel.splits == system.parallel.splits and not self.changes(system)

    @property
    def _parallel(self) -> Parallel:
        """Return how the run split its model before it was interrupted."""
        return Parallel.model_validate(self.meta.config["parallel"])

    def check(self, system: System, seed: int | None, allow_config_change: bool) -> None:
        """Raise ConfigError if seed or configuration changed."""
        if seed not in (None, self.meta.seed):
            raise ConfigError(f"--seed {seed}: the resumed run has seed {self.meta.seed}; omit --seed")
        by_setting = self._changes_by_setting(system)
        changes = list(by_setting.values())
        held = [change for setting, change in by_setting.items() if setting in _HELD]
        if self.meta.step and held:
            outcome = "\n".join(f"  {change}" for change in held)
            raise ConfigError(
                f"{self.path}: the snapshot holds the weights and the loss scale, so a resumed run can't change:\n"
                f"{outcome}\nundo that, or start a new run"
            )
        if changes and not allow_config_change:
            outcome = "\n".join(f"  {change}" for change in changes)
            raise ConfigError(
                f"{self.path}: the configuration has changed since the run began:\n{outcome}\n"
                "undo that, or give --allow-config-change (the log records it)"
            )


def find_resumption(resume: str, result: Path | None, folder: Path) -> Resumption | None:
    """Return the run that `--resume` names, or None to begin a new one.

    `auto` means the run of `result`, or else the latest in `folder`, if it had started and was interrupted. A run
    without a complete snapshot resumes from step 0. Raises CheckpointError if a path names no started run, or one that
    has ended.
    """
    if resume == "never":
        return None
    if resume == "auto":
        log = result or _last_log(folder)
        if log is None or ended(log) is not None:
            return None
        return _latest(log)
    return _named(Path(resume).absolute())


def _last_log(folder: Path) -> Path | None:
    """Return the log with the highest number in a folder, result_<n>.txt; None if it has no logs."""
    logs = {}
    for log in folder.glob("result_*.txt"):
        number = log.stem.removeprefix("result_")
        if number.isdecimal():  # not a copy, such as result_3_old.txt
            logs[int(number)] = log
    return logs[max(logs)] if logs else None


def _named(path: Path) -> Resumption:
    names_snapshot = path.parent.name == ResultFiles.SNAPSHOTS
    run = path.parent.parent if names_snapshot else path
    log = run if run.suffix == ".txt" else Path(f"{run}.txt")
    status = ended(log) if log.exists() else None
    if status is not None:  # to resume would cut a result's log
        raise CheckpointError(
            f"--resume {path}: this run has ended: {status}; start a new run without --resume, from this one's weights "
            "with --weights"
        )
    if names_snapshot:
        return Resumption(log, path, verified(path))
    resumption = _latest(log)
    if resumption is None:
        raise CheckpointError(
            f"--resume {path}: found no started run; give auto, a run's log or folder, or a snapshot's "
            f"(result_<n>/{ResultFiles.SNAPSHOTS}/step_<k>)"
        )
    return resumption


def _latest(log: Path) -> Resumption | None:
    files = ResultFiles(log)
    snapshot = newest(files.snapshots) or _beginning(files)
    return Resumption(log, *snapshot) if snapshot else None


def _beginning(files: ResultFiles) -> tuple[Path, Meta] | None:
    """Return a run's state at the start of its clock, which follows from the seed; None if the clock never started."""
    from compliance.read.run import RunFacts  # noqa: PLC0415 - only runs that resume need it

    facts = RunFacts(_events(files.log))
    if facts.started_ms is None:
        return None
    lines = files.log.read_bytes()
    start = lines.index(_mark(constants.RUN_START))
    remedy = "restore it, or start a new run with --resume never"
    config = read_object(files.folder / "config.json", CheckpointError, remedy)
    nodes = config["hardware"]["number_of_nodes"]
    return files.folder, Meta(
        step=0,
        samples=0,
        seed=facts.seed,
        saved_at="",
        nodes=nodes,
        ranks=nodes * config["launch"]["ranks_per_node"],
        evaluations=(),
        log_bytes=lines.index(b"\n", start) + 1,
        bertbench="",
        torch="",
        config=config,
    )


def ended(log: Path) -> str | None:
    """Return the status of a run that ended at its target or limit; None for any other run."""
    stops = (event.metadata for event in _events(log) if event.key == constants.RUN_STOP)
    return next((str(stop.get(constants.STATUS)) for stop in stops if not stop.get(INTERRUPTED)), None)


def _events(log: Path) -> list["Event"]:
    """Return a log's events; an empty list if the log is missing or empty, because its run never started.

    Raises CheckpointError if the system can't read the log, because the run may have started.
    """
    from compliance.read.log import CannotJudge, read_events  # noqa: PLC0415 - only runs that resume need it

    try:
        log.open("rb").close()
    except OSError as error:
        if is_systems(error):
            raise CheckpointError(unreadable(log, error, "")) from error
    try:
        return read_events(log)
    except CannotJudge:
        return []


def continue_run(resumption: Resumption, system: System) -> None:
    """Restore the files to the snapshot, and log that the run resumes from there.

    Raises CheckpointError as `restore_files` does.
    """
    sign = _last_sign(resumption.files.metrics) if system.launch.device == "cpu" else None
    count, cause = restore_files(resumption.files, resumption.meta)
    with resumption.files.open_trace() as trace:
        trace.resumed(resumption.meta.step, sign)
    with MlperfLog(resumption.log) as log:
        log.point(
            RESUMED,
            count,
            {
                "step": resumption.meta.step,
                "samples": resumption.meta.samples,
                "ranks": system.world_size,
                "changed": resumption.changes(system),
                "after": cause,
            },
        )


def _last_sign(metrics: Path) -> float | None:
    """Return the time of the last recorded step; None if there is none.

    On a CPU, a step is recorded as soon as it ends.
    """
    return metrics.stat().st_mtime if metrics.exists() and metrics.stat().st_size else None


def restore_files(files: ResultFiles, meta: Meta) -> tuple[int, str]:
    """Truncate the log and the metrics to their state at the snapshot. The log's lost lines are moved to lost.txt.

    Events of earlier resumptions, and of a clock that was set, stay. Later snapshots, final weights and partial files
    are removed.
    Returns the number of this resumption, and the cause of the interruption.
    Raises CheckpointError if the log is shorter than at the snapshot.
    """
    lines = files.log.read_bytes()
    if len(lines) < meta.log_bytes:
        raise CheckpointError(
            f"{files.log}: found {len(lines):,} bytes, expected at least {meta.log_bytes:,}, its size at the snapshot; "
            "restore the log that the run wrote"
        )
    events = _events(files.log)
    lost = lines[meta.log_bytes :]
    if lost:
        with files.lost.open("ab") as file:
            file.write(lost)
        to_disk(files.lost)
    marks = (_mark(RESUMED), _mark(CLOCK_SET))
    with files.log.open("r+b") as file:
        file.seek(meta.log_bytes)
        for line in lost.splitlines(keepends=True):
            if line.endswith(b"\n") and any(mark in line for mark in marks):
                file.write(line)
        file.truncate()
    _cut_metrics(files.metrics, meta.step)
    drop_unfinished(files.snapshots, meta.step)
    files.weights.unlink(missing_ok=True)
    return 1 + sum(event.key == RESUMED for event in events), _cause(events)


def _mark(key: str) -> bytes:
    return f'"key": "{key}"'.encode()


def _cause(events: list["Event"]) -> str:
    outcome = [
        event.value if event.key == "failure" else event.metadata.get("reason")
        for event in events
        if event.key in (constants.RUN_STOP, "failure")
    ]
    return next((str(reason) for reason in reversed(outcome) if reason), "no cause was recorded")


def _cut_metrics(path: Path, step: int) -> None:
    """Remove the lines of steps after `step`. A damaged line before them stays: readers skip it."""
    with path.open("r+b") as file:
        kept = 0
        for line in file:
            if not line.endswith(b"\n") or _step_of(line) > step:
                break
            kept += len(line)
        file.truncate(kept)


def _step_of(line: bytes) -> int:
    """Return the step of a line of metrics.jsonl; 0 for a line that a power cut has damaged."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        return 0


def _compared(config: dict[str, Any], global_batch_size: int) -> dict[str, Any]:
    content = {key: value for key, value in config.items() if key not in _FREE}
    content["launch"] = {key: value for key, value in config["launch"].items() if key not in _FREE_LAUNCH}
    content["hardware"] = {"division": config["hardware"]["division"]}
    return {**content, "global batch size": global_batch_size}
