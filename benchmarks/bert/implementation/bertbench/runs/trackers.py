"""Copy a run to a tracker: TensorBoard, MLflow, or Weights & Biases without its server.

Each tracker is a class here. It imports its library only when it opens a record, because every command's help lists the
names of trackers, and bertbench's installation includes none of these libraries.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bertbench.common.errors import ConfigError
from compliance.read.run import as_integer, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bertbench.runs.json_files import Row
    from bertbench.runs.run_summary import RunSummary


class TrackedStep(NamedTuple):
    """The measurements at a step, by name, and their time in seconds since 1970."""

    step: int
    time_s: float
    values: dict[str, float]


def tracked_name(run: RunSummary) -> str:
    """Return a name that distinguishes the run: system, folder and number, such as cpu_demo/bert/result_0.

    A tracker may take it for a path. A foreign log may name any system, so the name has no path of its own.
    """
    system = run.system.replace("/", "_").replace("\\", "_").lstrip(".")
    return f"{system or 'unnamed'}/{run.log.parent.name}/{run.log.stem}"


def tracked_parameters(run: RunSummary) -> dict[str, Any]:
    """Return the parameters of a run: the system file's settings, and seed, commit, processor and versions."""
    return {**run.settings, **{f"run.{key}": value for key, value in run.origin.items()}}


def tracked_steps(run: RunSummary) -> list[TrackedStep]:
    """Return the measurements of the steps in order; an evaluation belongs to the step before it."""
    batch = as_integer(run.facts.global_batch_size)
    tracked = _trained_steps(run, batch)
    for evaluation in run.evaluations:
        if evaluation.samples is None or evaluation.seconds is None or not batch:
            continue
        step = round(evaluation.samples / batch)
        time_s = (run.facts.started_ms or 0.0) / 1e3 + evaluation.seconds
        known = tracked.get(step, TrackedStep(step, time_s, {}))
        tracked[step] = known._replace(values=known.values | {"eval/accuracy": evaluation.accuracy})
    return [tracked[step] for step in sorted(tracked)]


def final_numbers(run: RunSummary) -> dict[str, float]:
    """Return the numbers that sum up a run, as far as they are known."""
    numbers = {
        "time_to_train_s": run.time_to_train_s,
        "best_accuracy": run.best_accuracy,
        "samples_to_train": run.samples,
        "samples_per_s": run.samples_per_s,
        "tflops_per_device": run.flops.tflops_per_device,
        "mfu": run.flops.mfu,
    }
    return {name: value for name, value in numbers.items() if value is not None}


def _trained_steps(run: RunSummary, batch: int | None) -> dict[int, TrackedStep]:
    """Return the steps in metrics.jsonl; each ended after the start of its block plus the block's steps so far."""
    tracked = {}
    block_began_ms = -1.0
    in_block_ms = 0.0
    for row in map(_numbers, run.steps):
        if "step" not in row:
            continue
        step = int(row["step"])
        step_ms = row.get("step_ms", 0.0)
        values = {f"train/{name}": value for name, value in row.items() if name != "step"}
        if step_ms and batch:
            values["train/samples_per_s"] = 1e3 * batch / step_ms
        began_ms = _block_start_ms(run, row.get("samples", 0.0))
        if began_ms != block_began_ms:
            block_began_ms = began_ms
            in_block_ms = 0.0
        in_block_ms += step_ms
        tracked[step] = TrackedStep(step, (block_began_ms + in_block_ms) / 1e3, values)
    return tracked


def _block_start_ms(run: RunSummary, samples: float) -> float:
    """Return when the block began in which a number of samples was reached; 0 before the first block."""
    began_ms = 0.0
    for event in run.facts.all("block_start"):
        first = event.metadata.get("first_epoch_num")
        if isinstance(first, int) and first < samples:
            began_ms = event.time_ms
    return began_ms


def _numbers(row: Row) -> dict[str, float]:
    """Return the numbers in a line of metrics.jsonl."""
    numbers = {}
    for name, value in row.items():
        numeric = number(value)
        if numeric is not None:
            numbers[name] = numeric
    return numbers


class Tracker(Protocol):
    """Records a run. A new record contains only the run's parameters; an earlier record of the run is replaced."""

    def record(self, steps: Sequence[TrackedStep]) -> None:
        """Add the measurements at these steps, in order."""

    def close(self, status: str, summary: Mapping[str, float]) -> None:
        """End the record with the run's status and its final numbers."""


class TensorBoard:
    """Event files, written by TensorBoard's own writer; each run has a folder."""

    def __init__(self, run: RunSummary, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415 - an extra

        run_folder = folder / tracked_name(run)
        run_folder.mkdir(parents=True, exist_ok=True)
        for old in run_folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = EventFileWriter(str(run_folder))
        rows = [f"| {name} | {json.dumps(value)} |" for name, value in tracked_parameters(run).items()]
        self._add_text("parameters", "\n".join(["| parameter | value |", "| --- | --- |", *rows]))

    def record(self, steps: Sequence[TrackedStep]) -> None:
        """Add an event for each step."""
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - an extra
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415 - an extra

        for step, time_s, values in steps:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
            self._writer.add_event(Event(wall_time=time_s, step=step, summary=summary))
        self._writer.flush()

    def close(self, status: str, summary: Mapping[str, float]) -> None:
        """Add status and final numbers as a text, and close the file."""
        self._add_text("status", json.dumps({"status": status, **summary}))
        self._writer.close()

    def _add_text(self, tag: str, text: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - an extra
        from tensorboard.plugins.text.summary_v2 import text_pb  # noqa: PLC0415 - an extra

        self._writer.add_event(Event(step=0, summary=text_pb(tag, text)))


class MLflow:
    """An experiment for each system, with a run for each run: on the server MLFLOW_TRACKING_URI, or in a local file."""

    _DATABASE = "mlflow.db"
    _LOG_TAG = "bertbench.log"
    _MOST_PARAMETERS = 100  # in one request, by MLflow's limits
    _MOST_METRICS = 1000  # in one request
    _LONGEST_VALUE = 500  # characters, for the strictest of MLflow's stores

    def __init__(self, run: RunSummary, folder: Path) -> None:
        from mlflow.entities import Param  # noqa: PLC0415 - an extra
        from mlflow.tracking import MlflowClient  # noqa: PLC0415 - an extra

        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            folder.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{(folder / self._DATABASE).resolve()}"
            logging.getLogger("mlflow").setLevel(logging.WARNING)  # otherwise it announces each table of a new file
        self._client = MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(run.system)
        experiment = known.experiment_id if known else self._client.create_experiment(run.system)
        log = str(run.log.resolve())
        for old in self._client.search_runs([experiment], f"tags.`{self._LOG_TAG}` = {log!r}"):
            self._client.delete_run(old.info.run_id)
        name = f"{run.log.parent.name}/{run.log.stem}"
        created = self._client.create_run(experiment, run_name=name, tags={self._LOG_TAG: log})
        self._id = created.info.run_id
        parameters = [Param(name, str(value)[: self._LONGEST_VALUE]) for name, value in tracked_parameters(run).items()]
        for batch in _batches(parameters, self._MOST_PARAMETERS):
            self._client.log_batch(self._id, params=batch)

    def record(self, steps: Sequence[TrackedStep]) -> None:
        """Add a metric for each value."""
        from mlflow.entities import Metric  # noqa: PLC0415 - an extra

        metrics = []
        for step, time_s, values in steps:
            metrics += [Metric(name, value, round(1e3 * time_s), step) for name, value in values.items()]
        for batch in _batches(metrics, self._MOST_METRICS):
            self._client.log_batch(self._id, metrics=batch)

    def close(self, status: str, summary: Mapping[str, float]) -> None:
        """Add the final numbers and the status; a run that still trains stays open."""
        from mlflow.entities import Metric, RunTag  # noqa: PLC0415 - an extra

        metrics = [Metric(name, value, 0, 0) for name, value in summary.items()]
        self._client.log_batch(self._id, metrics=metrics, tags=[RunTag("status", status)])
        if status != "running":
            self._client.set_terminated(self._id, "FINISHED" if status == "success" else "FAILED")


class WandbOffline:
    """Weights & Biases without its server; each run has a folder, which `wandb sync` uploads later."""

    def __init__(self, run: RunSummary, folder: Path) -> None:
        import wandb  # noqa: PLC0415 - an extra

        folder.mkdir(parents=True, exist_ok=True)
        identity = hashlib.sha256(os.fsencode(run.log.resolve())).hexdigest()[:12]
        for old in (folder / "wandb").glob(f"offline-run-*-{identity}"):
            shutil.rmtree(old)
        self._run = wandb.init(
            mode="offline",
            dir=str(folder),
            project="bertbench",
            group=run.system,
            name=tracked_name(run),
            id=identity,
            config=tracked_parameters(run),
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True
            ),
            reinit="create_new",
        )

    def record(self, steps: Sequence[TrackedStep]) -> None:
        """Add a row of history for each step."""
        for step, time_s, values in steps:
            self._run.log({**values, "time_s": time_s}, step=step)

    def close(self, status: str, summary: Mapping[str, float]) -> None:
        """Add the summary, and finish the run."""
        import wandb  # noqa: PLC0415 - an extra

        self._run.summary.update({"status": status, **summary})
        self._run.finish(exit_code=0 if status in ("success", "running") else 1)
        wandb.teardown()  # waits until W&B's service has written the file, which finish doesn't


@dataclass(frozen=True)
class _Kind:
    """A kind of tracker; an extra of bertbench with its name installs it."""

    begin: Callable[[RunSummary, Path], Tracker]
    """Begins the record of a run in a folder, and removes an earlier record of its log or marks it as deleted."""
    packages: tuple[str, ...]
    """The packages that the extra installs."""


_KINDS = {
    "tensorboard": _Kind(TensorBoard, ("tensorboard",)),
    "mlflow": _Kind(MLflow, ("mlflow", "sqlalchemy", "alembic")),
    "wandb": _Kind(WandbOffline, ("wandb",)),
}
TRACKERS = tuple(_KINDS)
"""The names of the trackers, for --to."""


def check_installed(name: str) -> None:
    """Raise ConfigError if packages that a tracker needs aren't installed."""
    missing = [package for package in _KINDS[name].packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ConfigError(
            f"{name} needs {' and '.join(missing)}, which isn't installed; install bertbench's extra "
            f"`{name}`: pip install -e '.[{name}]'"
        )


def open_tracker(name: str, run: RunSummary, folder: Path) -> Tracker:
    """Begin the record of a run in an installed tracker. Raises the tracker's own errors."""
    return _KINDS[name].begin(run, folder)


def _batches(items: list[Any], most: int) -> list[list[Any]]:
    """Divide the items into lists of at most `most` items."""
    return [items[first : first + most] for first in range(0, len(items), most)]
