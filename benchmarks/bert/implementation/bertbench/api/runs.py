"""Read a run's files: its log, and the metrics and settings in the log's folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bertbench.common.errors import DataError
from bertbench.common.user_errors import user_errors
from bertbench.runs.json_files import metric_rows
from bertbench.runs.run_list import status
from bertbench.runs.run_settings import configured, system_name, target_of
from bertbench.runs.sample_counts import sample_counts, samples_per_s
from compliance.read.find import find_logs
from compliance.read.log import read_events
from compliance.read.run import RunFacts


@dataclass(frozen=True)
class MeasuredAccuracy:
    """One evaluation of a run."""

    samples: float | None
    """The number of training samples before it."""
    accuracy: float
    """The share of masked tokens that the model predicts correctly, from 0 to 1."""
    seconds: float | None
    """Seconds since the start of the clock."""


@dataclass(frozen=True)
class RunResult:
    """A run, read from its files; unknown fields are None. Field names are those of `bertbench report --json`."""

    log: Path
    system: str
    seed: int | None
    status: str
    """One of: success, missed the target, aborted, interrupted, running, unfinished, not started, smoke, profile."""
    target: float | None
    """The accuracy that ends the run."""
    best_accuracy: float | None
    samples: float | None
    """Training samples at the last evaluation; for a successful run, these are its samples to converge."""
    time_to_train_s: float | None
    """The score: seconds from run_start to run_stop."""
    samples_per_s: float | None
    """Training samples per second, from run_start to run_stop."""
    evaluations: tuple[MeasuredAccuracy, ...]
    metrics: Mapping[str, tuple[Any, ...]] = field(repr=False)
    """metrics.jsonl by column, each with a value for every step, None where a step has none: step, samples, loss, lr,
    grad_norm, step_ms, load_efficiency and more (docs/running.md). Empty for logs of other programs."""
    settings: Mapping[str, Any] = field(repr=False)
    """Every setting of the run by its dotted name, as in --set; empty for logs of other programs."""


@user_errors()
def read_run(run: str | Path) -> RunResult:
    """Read a run, given its log, the folder of the log, or the log's name without .txt. `judge_log` judges it.

    Logs of other programs can be read, too, but have no metrics or settings.

    Raises BertbenchError if there is nothing at the path, if it isn't a log, or if the path contains several logs.
    """
    log = find_log(Path(run))
    facts = RunFacts(read_events(log))
    started_ms = facts.started_ms
    evaluations = []
    for evaluation in sample_counts(facts).evaluations or facts.evaluations:
        seconds = None if started_ms is None else (evaluation.time_ms - started_ms) / 1e3
        evaluations.append(MeasuredAccuracy(evaluation.samples, evaluation.accuracy, seconds))
    return RunResult(
        log=log,
        system=system_name(log, facts),
        seed=facts.seed if isinstance(facts.seed, int) else None,
        status=status(log, facts),
        target=target_of(log, facts),
        best_accuracy=facts.best_accuracy,
        samples=sample_counts(facts).total,
        time_to_train_s=facts.time_to_train_s,
        samples_per_s=samples_per_s(facts),
        evaluations=tuple(evaluations),
        metrics=MappingProxyType(_columns(list(metric_rows(log)))),
        settings=MappingProxyType(configured(log)),
    )


def find_log(path: Path) -> Path:
    """Return the only log at a path. Raises CannotJudge if there is none, DataError if there are several."""
    logs = find_logs(path)
    if len(logs) > 1:
        raise DataError(f"{path}: found {len(logs)} logs, expected one; name one of them, such as {logs[0]}")
    return logs[0]


def _columns(rows: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return the columns of rows, in the order in which their names first occur."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        columns[name] = tuple(row.get(name) for row in rows)
    return columns
