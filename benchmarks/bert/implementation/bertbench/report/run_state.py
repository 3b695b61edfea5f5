"""Compute the state of a run in numbers, which `bertbench watch` shows and Prometheus scrapes."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from bertbench.report.followed_run import FollowedRun, Row
from bertbench.report.rank_processes import RankProcess
from bertbench.report.run_list import silence_s, status
from bertbench.run_files.json_files import Points
from bertbench.run_files.log_spans import evaluation_s, startup_s
from bertbench.run_files.run_settings import configured, system_name, target_of
from bertbench.run_files.sample_counts import accuracy_curve, samples_to_end
from bertbench.run_files.straggler import find_straggler, mean_times
from compliance.read.find import LOG_PATTERN
from compliance.read.log import CannotJudge, read_events
from compliance.read.run import RunFacts, as_integer

_RECENT = 50  # the last steps, from which the current speed is computed


@dataclass(frozen=True)
class TargetForecast:
    """The training samples at which a run reaches its target: the most likely number and a range."""

    samples: float
    low: float
    high: float
    basis: str
    """The basis of the forecast."""


@dataclass(frozen=True)
class RunState:
    """The numbers of a run at one time, which `watch --json` prints; None or empty if unknown."""

    name: str
    system: str
    status: str
    seed: int | None
    commit: str | None
    world_size: int | None
    step: int
    max_steps: int | None
    samples: float
    loss: float | None
    learning_rate: float | None
    grad_norm: float | None
    clipped: float | None
    samples_per_s: float | None
    """Speed of the last steps."""
    tflops_per_device: float | None
    """The rate in the last steps; so is the next field."""
    mfu: float | None
    """Model FLOP utilisation: the share of the device's peak."""
    bubble: float | None
    """The share of a pipeline's time in which its ranks wait for other stages."""
    accuracy: float | None
    best_accuracy: float | None
    target: float | None
    elapsed_s: float | None
    """The time on the clock."""
    silent_s: float
    """The time since the run last wrote."""
    phases_s: dict[str, float]
    """The time on the clock, by phase."""
    next_evaluation_s: float | None
    target_forecast: TargetForecast | None
    target_s: float | None
    """The seconds to the target, according to the forecast."""
    ranks: tuple[RankProcess, ...]
    straggler: int | None
    """The rank for which the others wait."""
    straggler_phase: str | None
    """The phase of a step in which that rank is slow, if the run measured it."""


def state_of(run: FollowedRun, ranks: Sequence[RankProcess] = (), earlier: Sequence[float] = ()) -> RunState:
    """Return the state of a run; `earlier` holds the samples to the target of other runs of the same system."""
    facts = run.facts
    parameters = run.parameters()
    last_row: Row = next(reversed(run.rows.values()), {})
    run_status = status(run.log, facts)
    running = run_status == "running"
    end_ms = 1e3 * time.time() if running else _last_moment_ms(facts)
    speed = _recent_samples_per_s(run)
    samples = max(last_row.get("samples", 0.0), samples_to_end(facts) or 0.0)
    silent_s = max(0.0, silence_s(run.log))
    next_evaluation = _next_evaluation(facts) if running else None
    samples_now = samples
    next_evaluation_s = None
    if next_evaluation and speed:
        # steps on a GPU are written only at evaluations; until then, assume the last speed
        samples_now = min(next_evaluation, samples + speed * silent_s)
        next_evaluation_s = (next_evaluation - samples_now) / speed
    target = target_of(run.log, facts)
    forecast = None
    straggler = None
    if running:
        straggler = find_straggler(mean_times(run.rank_times))
        if target is not None:
            forecast = target_forecast(accuracy_curve(facts), target, earlier)
    return RunState(
        name=run.name,
        system=run.system,
        status=run_status,
        seed=as_integer(parameters.get("run.seed")),
        commit=parameters.get("run.commit"),
        world_size=as_integer(parameters.get("run.world_size")),
        step=int(last_row.get("step", 0)),
        max_steps=_most_steps(parameters, run.batch),
        samples=samples,
        loss=last_row.get("loss"),
        learning_rate=last_row.get("lr"),
        grad_norm=last_row.get("grad_norm"),
        clipped=last_row.get("clipped"),
        samples_per_s=speed,
        tflops_per_device=_recent_median(run, "tflops_per_device"),
        mfu=_recent_median(run, "mfu"),
        bubble=_recent_median(run, "bubble"),
        accuracy=facts.evaluations[-1].accuracy if facts.evaluations else None,
        best_accuracy=facts.best_accuracy,
        target=target,
        elapsed_s=_elapsed_s(facts, end_ms),
        silent_s=silent_s,
        phases_s=phases(run, end_ms),
        next_evaluation_s=next_evaluation_s,
        target_forecast=forecast,
        target_s=_seconds_to_target(forecast, samples_now, facts, speed),
        ranks=tuple(ranks),
        straggler=straggler.rank if straggler else None,
        straggler_phase=straggler.phase if straggler else None,
    )


def _last_moment_ms(facts: RunFacts) -> float | None:
    """Return when a run stopped or, if it hasn't ended, when it last logged something."""
    if facts.stopped_ms:
        return facts.stopped_ms
    events = facts.events()
    return events[-1].time_ms if events else None


def _elapsed_s(facts: RunFacts, end_ms: float | None) -> float | None:
    """Return the seconds from run_start to `end_ms`."""
    if facts.started_ms is None or end_ms is None:
        return None
    return max(0.0, (end_ms - facts.started_ms) / 1e3)


def _most_steps(parameters: dict[str, Any], batch: int | None) -> int | None:
    """Return the step at which the run stops at the latest, by its limits on steps and samples; 5 for a smoke run."""
    most_steps = as_integer(parameters.get("schedule.max_steps"))
    most_samples = as_integer(parameters.get("evaluation.max_samples"))
    if most_samples is None or not batch:
        return most_steps
    steps_of_samples = math.ceil(most_samples / batch)
    return steps_of_samples if most_steps is None else min(most_steps, steps_of_samples)


def earlier_runs(log: Path) -> list[float]:
    """Return the samples to the target of the other runs in the folder of `log` that reached the target.

    Only runs with the same system and target count.
    """
    kind = _kind(log, RunFacts([]))
    samples_to_target = []
    for other in log.parent.glob(LOG_PATTERN):
        if other == log:
            continue
        try:
            facts = RunFacts(read_events(other))
        except CannotJudge:
            continue
        samples = samples_to_end(facts)
        if samples and facts.status == "success" and _kind(other, facts) == kind:
            samples_to_target.append(samples)
    return samples_to_target


def _kind(log: Path, facts: RunFacts) -> tuple[str, Any]:
    """Return a run's system and target."""
    return system_name(log, facts), configured(log).get("evaluation.target")


def target_forecast(curve: Points, target: float, earlier: Sequence[float]) -> TargetForecast | None:
    """Return a forecast of when accuracy reaches `target`; None if there is no basis yet.

    `curve` holds (samples, accuracy); `earlier` holds the samples to the target of other runs. Other runs are the
    better basis, because a curve may be on a plateau for most of its length, where its slope is meaningless. Runs that
    needed fewer samples than this run has already taken don't count.
    """
    samples_so_far = curve[-1][0] if curve else 0.0
    ahead = [samples for samples in earlier if samples > samples_so_far]
    if ahead:
        return TargetForecast(median(ahead), min(ahead), max(ahead), "earlier runs of this system")
    if len(curve) < 2:
        return None
    (samples_before, accuracy_before), (samples, accuracy) = curve[-2:]
    if accuracy <= accuracy_before:
        return None
    samples_per_accuracy = (samples - samples_before) / (accuracy - accuracy_before)
    at_target = samples + max(0.0, target - accuracy) * samples_per_accuracy
    return TargetForecast(at_target, at_target, at_target, "the slope of its last evaluations")


def _recent_samples_per_s(run: FollowedRun) -> float | None:
    """Return the speed of the last steps, without the run's first step, which warms up."""
    newest_first = list(islice(reversed(run.rows), _RECENT))
    if len(newest_first) < 2:
        return None
    last_step = newest_first[0]
    first_step = newest_first[-1]
    step_ms = [run.rows[step].get("step_ms", 0.0) for step in newest_first[:-1]]
    step_s = median(step_ms) / 1e3
    if step_s <= 0:
        return None
    samples = run.rows[last_step].get("samples", 0.0) - run.rows[first_step].get("samples", 0.0)
    return samples / (last_step - first_step) / step_s


def _recent_median(run: FollowedRun, field: str) -> float | None:
    """Return the median of a field over the last steps; None if they don't have the field."""
    newest = islice(reversed(run.rows.values()), _RECENT)
    values = [row[field] for row in newest if field in row]
    return median(values) if values else None


def phases(run: FollowedRun, end_ms: float | None, samples: float = math.inf) -> dict[str, float]:
    """Return the seconds on the clock until `end_ms`, when `samples` were trained, by phase.

    Time in no phase counts as `other`: snapshots, and steps that aren't in a file yet. Before the clock starts, there
    are no phases. An evaluation counts even before it ends.
    """
    facts = run.facts
    if facts.started_ms is None or end_ms is None:
        return {}
    rows = [row for row in run.rows.values() if row.get("samples", 0.0) <= samples]
    waiting_s = sum(row.get("load_wait_ms", 0.0) for row in rows) / 1e3
    stepping_s = sum(row.get("step_ms", 0.0) for row in rows) / 1e3
    known = {
        "start-up": startup_s(facts) or 0.0,
        "steps": max(0.0, stepping_s - waiting_s),
        "waiting for data": waiting_s,
        "evaluation": _evaluating_s(facts, end_ms),
    }
    total_s = (end_ms - facts.started_ms) / 1e3
    return known | {"other": max(0.0, total_s - sum(known.values()))}


def _evaluating_s(facts: RunFacts, end_ms: float) -> float:
    """Return the seconds of the evaluations until `end_ms`; an evaluation that hasn't ended counts up to that time."""
    starts = [event.time_ms for event in facts.all("eval_start") if event.time_ms <= end_ms]
    stops = [event.time_ms for event in facts.all("eval_stop") if event.time_ms <= end_ms]
    unfinished = len(starts) - len(stops)
    return (sum(stops) + unfinished * end_ms - sum(starts)) / 1e3


def _next_evaluation(facts: RunFacts) -> float | None:
    """Return the training samples at the end of the last block that has begun."""
    blocks = facts.all("block_start")
    if not blocks:
        return None
    first = blocks[-1].metadata.get("first_epoch_num")
    count = blocks[-1].metadata.get("epoch_count")
    return float(first + count) if isinstance(first, int) and isinstance(count, int) else None


def _seconds_to_target(
    forecast: TargetForecast | None, samples: float, facts: RunFacts, samples_per_s: float | None
) -> float | None:
    """Return the remaining seconds at the current speed, with as much time for evaluation per sample as so far."""
    if forecast is None or not samples_per_s:
        return None
    trained = samples_to_end(facts)
    evaluation_s_per_sample = evaluation_s(facts) / trained if trained else 0.0
    return max(0.0, forecast.samples - samples) * (1 / samples_per_s + evaluation_s_per_sample)
