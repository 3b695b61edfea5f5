"""Read a run's files once, into one summary: of a finished, running, broken or foreign run alike.

`bertbench report`, `compare` and `track`, the page of a report and the Python API show this summary, so they agree. It
comes from the log and from the files that bertbench writes next to it: metrics.jsonl, trace.json, config.json, run.json
and others. Any of them may be missing, truncated or somebody else's. This module judges nothing; judged_runs.py asks
the judge.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any

from bertbench.common.errors import DataError
from bertbench.common.paths import METRICS, folder_of
from bertbench.common.published_results import MLPERF_TARGET
from bertbench.config.layout import bubble_share
from bertbench.runs.flop_rates import RunFlops, flops_of
from bertbench.runs.json_files import Points, Row, metric_rows, read_flattened, read_json
from bertbench.runs.ledger import wall_clock
from bertbench.runs.log_spans import energy, evaluation_s, startup, startup_s
from bertbench.runs.sample_counts import sample_counts
from bertbench.runs.straggler import Straggler, find_straggler, mean_times
from bertbench.runs.trace_reader import RunTrace, read_trace
from compliance.read.find import find_logs
from compliance.read.log import read_events
from compliance.read.run import RunFacts, as_integer, number

MISSED = "missed the target"
"""The status of a run that claims success below its target."""
NO_LOG = "no log"
"""The status of a file that isn't a log."""
INTERRUPTED = "interrupted"
RUNNING = "running"
_USES: dict[str, Callable[[list[float]], float]] = {
    "cores_busy": mean,
    "device_busy": mean,
    "memory_gb": mean,
    "peak_memory_gb": max,
}
"""The uses in a line of metrics.jsonl, and how those of all steps become one."""
_SHORT_RUNS = ("smoke", "profile")
_QUIET_S = 300.0  # a run on GPUs writes only at evaluations, which are minutes apart
_QUIET_GAPS = 3
"""A run counts as lost if it hasn't written for this many times the longest gap in its log, and at least `_QUIET_S`."""


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
class RunSummary:
    """A run, read from its files; unknown fields are None. Field names are those of `bertbench report --json`."""

    log: Path
    system: str
    seed: int | None
    status: str
    """One of: success, missed the target, aborted, interrupted, running, unfinished, not started, smoke, profile; for a
    file that isn't a log, no log. Logs of other programs may state others."""
    not_a_result: str | None
    """Why the run can't be a result, such as smoke or profile."""
    started: str | None
    """The date and time in UTC."""
    target: float | None
    """The accuracy that ends the run."""
    time_to_train_s: float | None
    """The score: seconds from run_start to run_stop. None for a run that was interrupted and may be resumed."""
    evaluations: tuple[MeasuredAccuracy, ...]
    samples_from: str | None
    """The way in which the evaluations' samples were counted."""
    startup: dict[str, dict[str, float]] | None
    """The seconds of each part of the start-up, from launch to first step."""
    startup_s: float | None
    """Seconds on the clock before the first step."""
    evaluation_s: float
    ledger: dict[str, float] | None
    """The seconds of wall-clock time by what they were used for, across restarts and requeues."""
    energy: dict[str, Any] | None
    """The joules from run_start to run_stop, and those of each kind of counter: nvml, rapl."""
    flops: RunFlops
    """The model's FLOP/s without padding over the time of all steps, and the device's peak."""
    bubble: float | None
    """The share of a pipeline's time in which its ranks wait for other stages; the mean of all steps."""
    bubble_of_equal_stages: float | None
    """The same by the formula, for stages that take equal time."""
    straggler: Straggler | None
    steps: tuple[Row, ...] = field(repr=False)
    """The lines of metrics.jsonl. Empty for logs of other programs."""
    trace: RunTrace = field(repr=False)
    """Where the time went; empty for logs of other programs."""
    settings: Mapping[str, Any] = field(repr=False)
    """Every setting of the run by its dotted name, as in --set; empty for logs of other programs."""
    origin: Mapping[str, Any] = field(repr=False)
    """The content of run.json by dotted names: commit, processor, versions."""
    facts: RunFacts = field(repr=False, compare=False)
    """Everything else that the log states."""

    @property
    def best_accuracy(self) -> float | None:
        """Return the highest measured accuracy."""
        return max((evaluation.accuracy for evaluation in self.evaluations), default=None)

    @property
    def samples(self) -> float | None:
        """Return the training samples at the last evaluation: a successful run's samples to converge."""
        return next((measured.samples for measured in reversed(self.evaluations) if measured.samples is not None), None)

    @property
    def samples_per_s(self) -> float | None:
        """Return the training samples per second, from run_start to run_stop."""
        return self.samples / self.time_to_train_s if self.samples and self.time_to_train_s else None

    @property
    def steps_s(self) -> float | None:
        """Return the seconds on the clock that are neither start-up nor evaluation."""
        if self.time_to_train_s is None or self.startup_s is None:
            return None
        return self.time_to_train_s - self.startup_s - self.evaluation_s

    @property
    def load_efficiency(self) -> float | None:
        """Return the mean over steps of mean load / largest load."""
        efficiencies = [value for _, value in self.curve("load_efficiency")]
        return mean(efficiencies) if efficiencies else None

    @property
    def use(self) -> dict[str, float]:
        """Return what rank 0 used (machine/resource_use.py): means over steps, and the largest `peak_memory_gb`.

        Empty for logs of other programs; without `device_busy` on a CPU.
        """
        use = {}
        for name, combine in _USES.items():
            values = [value for _, value in self.curve(name)]
            if values:
                use[name] = combine(values)
        return use

    @property
    def metrics(self) -> Mapping[str, tuple[Any, ...]]:
        """Return metrics.jsonl by column, each with a value for every step, None where a step has none.

        The columns are step, samples, loss, lr, grad_norm, step_ms, load_efficiency and more.
        """
        names = dict.fromkeys(name for row in self.steps for name in row)
        return MappingProxyType({name: tuple(row.get(name) for row in self.steps) for name in names})

    def curve(self, metric: str) -> Points:
        """Return (step, value) for each step that has this number in metrics.jsonl."""
        points = []
        for row in self.steps:
            step = number(row.get("step"))
            value = number(row.get(metric))
            if step is not None and value is not None:
                points.append((step, value))
        return points


def read_summary(run: str | Path) -> RunSummary:
    """Read a run, given its log, the folder of the log, or the log's name without .txt.

    Logs of other programs can be read, too, but have no metrics or settings.

    Raises CannotJudge if there is nothing at the path or if it isn't a log, and DataError if the path contains several
    logs.
    """
    logs = find_logs(Path(run))
    if len(logs) > 1:
        raise DataError(f"{run}: found {len(logs)} logs, expected one; name one of them, such as {logs[0]}")
    return summary_of(logs[0], RunFacts(read_events(logs[0])))


def summary_of(log: Path, facts: RunFacts | None) -> RunSummary:
    """Read a run whose log's facts are known; they are None if the log isn't one, or is still empty."""
    is_log = facts is not None or is_empty(log)
    facts = facts or RunFacts([])
    settings = read_flattened(log, "config.json")
    steps = tuple(metric_rows(log))
    counts = sample_counts(facts)
    trace = read_trace(log)
    evaluations = tuple(
        MeasuredAccuracy(samples, measured.accuracy, _seconds_on_clock(facts, measured.time_ms))
        for measured, samples in zip(facts.evaluations, counts.samples, strict=True)
    )
    target = _target(facts, settings)
    status = _status(log, facts, evaluations, target) if is_log else NO_LOG
    name = settings.get("name") or facts.platform
    return RunSummary(
        log=log,
        system=name if isinstance(name, str) else log.parent.parent.name,
        seed=facts.seed if isinstance(facts.seed, int) else None,
        status=status,
        not_a_result=facts.not_a_result,
        started=_date(facts.started_ms),
        target=target,
        time_to_train_s=None if status == INTERRUPTED else facts.time_to_train_s,
        evaluations=evaluations,
        samples_from=counts.source,
        startup=startup(facts),
        startup_s=startup_s(facts),
        evaluation_s=evaluation_s(facts),
        ledger=wall_clock(trace.activities),
        energy=energy(facts),
        flops=flops_of(steps, read_json(log, "peak.json")),
        bubble=trace.bubble(),
        bubble_of_equal_stages=_equal_stages_bubble(settings),
        straggler=None if facts.not_a_result else find_straggler(mean_times(trace.phases)),
        steps=steps,
        trace=trace,
        settings=MappingProxyType(settings),
        origin=MappingProxyType(read_flattened(log, "run.json")),
        facts=facts,
    )


def is_empty(log: Path) -> bool:
    """Return whether a file is empty, as a run's log is until its ranks have met."""
    with suppress(OSError):
        return log.stat().st_size == 0
    return False


def _target(facts: RunFacts, settings: Mapping[str, Any]) -> float | None:
    """Return the accuracy that ends a run.

    For a closed run, it is MLPerf's target. For an open run, it is the run's own, if its log or configuration states
    it. The closed target of round 0.7 was lower; the judge takes that into account.
    """
    if facts.division == "closed":
        return MLPERF_TARGET
    logged = number(facts.value("bertbench_target"))
    return number(settings.get("evaluation.target")) if logged is None else logged


def _status(log: Path, facts: RunFacts, evaluations: tuple[MeasuredAccuracy, ...], target: float | None) -> str:
    """Return a run's status, from the end of its log or from whether its files still grow.

    A stopped run that can be resumed is `interrupted`; a run that hasn't written for too long is `unfinished`.
    """
    if stop := facts.first("run_stop"):
        if facts.not_a_result in _SHORT_RUNS:
            return str(facts.not_a_result)
        if stop.metadata.get("interrupted"):
            return INTERRUPTED
        best_accuracy = max((measured.accuracy for measured in evaluations), default=0.0)
        if facts.status == "success" and target is not None and best_accuracy < target:
            return MISSED
        return facts.status if isinstance(facts.status, str) else "unfinished"
    times_s = [event.time_ms / 1e3 for event in facts.events()]
    longest_gap_s = max((later - earlier for earlier, later in pairwise(times_s)), default=0.0)
    if _silence_s(log) <= max(_QUIET_S, _QUIET_GAPS * longest_gap_s):
        return RUNNING
    return "unfinished" if facts.started_ms is not None else "not started"


def _silence_s(log: Path) -> float:
    """Return the seconds since a run last wrote to its log or its metrics."""
    written = [0.0]
    for path in (log, folder_of(log) / METRICS):
        with suppress(OSError):  # the file doesn't exist yet, was removed, or its file system is temporarily away
            written.append(path.stat().st_mtime)
    return time.time() - max(written)


def _seconds_on_clock(facts: RunFacts, time_ms: float) -> float | None:
    return None if facts.started_ms is None else (time_ms - facts.started_ms) / 1e3


def _date(time_ms: float | None) -> str | None:
    """Return a log's time as a date and time in UTC; None if it is outside the calendar."""
    if time_ms is None:
        return None
    try:
        return f"{datetime.fromtimestamp(time_ms / 1e3, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return None


def _equal_stages_bubble(settings: Mapping[str, Any]) -> float | None:
    """Return the bubble of a run's pipeline by the formula; None without a pipeline."""
    names = ("pipeline", "microbatches", "virtual_stages")
    pipeline, microbatches, virtual_stages = (as_integer(settings.get(f"parallel.{name}")) for name in names)
    if pipeline is None or microbatches is None or virtual_stages is None or pipeline < 2 or microbatches < 1:
        return None
    return bubble_share(pipeline, microbatches, max(1, virtual_stages))
