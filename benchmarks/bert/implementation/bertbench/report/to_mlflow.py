"""MLflow: an experiment a system, a run a run; in the server of MLFLOW_TRACKING_URI, or in a file of the folder."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from bertbench.report.feed import Point
from bertbench.report.run_reading import FollowedRun

DATABASE = "mlflow.db"
_LOG_TAG = "bertbench.log"
_MOST_PARAMETERS, _MOST_METRICS = 100, 1000  # of one request, by MLflow's limits
_LONGEST_VALUE = 500  # letters, of the strictest of its stores


class Recorder:
    """One run; an earlier record of the same log is marked as deleted."""

    def __init__(self, run: FollowedRun, out: Path) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            out.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{(out / DATABASE).resolve()}"
            logging.getLogger("mlflow").setLevel(logging.WARNING)  # it announces each table of a new file
        self._client = MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(run.system)
        experiment = known.experiment_id if known else self._client.create_experiment(run.system)
        log = str(run.log.resolve())
        for old in self._client.search_runs([experiment], f"tags.`{_LOG_TAG}` = {log!r}"):
            self._client.delete_run(old.info.run_id)
        name = f"{run.log.parent.name}/{run.log.stem}"
        self._id = self._client.create_run(experiment, run_name=name, tags={_LOG_TAG: log}).info.run_id
        parameters = [Param(name, str(value)[:_LONGEST_VALUE]) for name, value in run.parameters().items()]
        for first in range(0, len(parameters), _MOST_PARAMETERS):
            self._client.log_batch(self._id, params=parameters[first : first + _MOST_PARAMETERS])

    def record(self, points: Sequence[Point]) -> None:
        """Add a metric a value."""
        metrics = [
            Metric(name, value, round(1e3 * time_s), step)
            for step, time_s, values in points
            for name, value in values.items()
        ]
        for first in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[first : first + _MOST_METRICS])

    def close(self, status: str, summary: Mapping[str, float]) -> None:
        """Add the final numbers, and how the run ended."""
        metrics = [Metric(name, value, 0, 0) for name, value in summary.items()]
        self._client.log_batch(self._id, metrics=metrics, tags=[RunTag("status", status)])
        if status != "running":
            self._client.set_terminated(self._id, "FINISHED" if status == "success" else "FAILED")
