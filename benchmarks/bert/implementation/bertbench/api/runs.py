"""Read a run's files: its log, and the metrics and settings in the log's folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bertbench.common.errors import DataError
from bertbench.common.user_errors import user_errors
from bertbench.report.run_list import status
from bertbench.run_files.json_files import metric_rows
from bertbench.run_files.run_settings import configured, system_name, target_of
from bertbench.run_files.sample_counts import sample_counts, samples_per_s
from compliance.read.find import find_logs
from compliance.read.log import read_events
from compliance.read.run import RunFacts


@dataclass(frozen=True)
class MeasuredAccuracy:
    """One evaluation of a run."""

    samples: float | None
    """Training samples before it."""
    accuracy: float
    """Share of masked tokens that the model predicts, 0 to 1."""
    seconds: float | None
    """After the clock's start."""


@dataclass(frozen=True)
class RunResult:
    """A run by its files; a field that they don't give is None. Fields are called as in `bertbench report --json`."""

    log: Path
    system: str
    seed: int | None
    status: str
    """success, missed the target, aborted, interrupted, running, unfinished, not started, smoke or profile."""
    target: float | None
    """The accuracy that ends the run."""
    best_accuracy: float | None
    samples: float | None
    """Training samples at the last evaluation: of a successful run, its samples to converge."""
    time_to_train_s: float | None
    """Seconds on the clock, from run_start to run_stop: the score."""
    samples_per_s: float | None
    """Training samples per second on the clock."""
    evaluations: tuple[MeasuredAccuracy, ...]
    metrics: Mapping[str, tuple[Any, ...]] = field(repr=False)
    """metrics.jsonl by column, each with a value for every step, None where a step has none: step, samples, loss, lr,
    grad_norm, step_ms, load_efficiency and more (docs/running.md). Empty for logs of other programs."""
    settings: Mapping[str, Any] = field(repr=False)
    """Every setting of the run, by dotted name as after --set; empty for logs of other programs."""


@user_errors()
def read_run(run: str | Path) -> RunResult:
    """Read a run, given its log, the log's folder, or the log's name without .txt; `judge_log` judges it.

    Logs of other programs can be read, too: they have no metrics and no settings.

    Raises BertbenchError if nothing is there, if it is no log, or if the path has several.
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
    """Return the only log that a path names. Raises CannotJudge if it names none, DataError if it names several."""
    logs = find_logs(path)
    if len(logs) > 1:
        raise DataError(f"{path}: found {len(logs)} logs, expected one; name one of them, such as {logs[0]}")
    return logs[0]


def _columns(rows: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return rows by column, in the order in which the names first occur."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        columns[name] = tuple(row.get(name) for row in rows)
    return columns
