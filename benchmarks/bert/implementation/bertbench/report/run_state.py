"""Where a run stands, in numbers: what `bertbench watch` draws and Prometheus scrapes."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from bertbench.common.log_spans import evaluation_s, startup_s
from bertbench.report.listing import silence_s, status, system_name
from bertbench.report.rank_lines import Rank
from bertbench.report.remaining_time import Forecast, forecast
from bertbench.report.run_reading import FollowedRun, Row
from bertbench.run_files.reading import accuracies
from bertbench.run_files.samples import samples_to_end
from bertbench.run_files.settings import configured, target_of
from bertbench.run_files.straggler import mean_times, straggler
from compliance.read.find import LOG_PATTERN
from compliance.read.log import CannotJudge, read_events
from compliance.read.run import RunFacts, as_integer

_RECENT = 50  # steps that the speed of now is measured on


@dataclass(frozen=True)
class RunState:
    """Numbers of a run at one time, which `watch --json` prints; None, or nothing, where they are not known."""

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
    """Of the last steps."""
    accuracy: float | None
    best_accuracy: float | None
    target: float | None
    elapsed_s: float | None
    """On the clock."""
    silent_s: float
    """Since it last wrote."""
    phases_s: dict[str, float]
    """The time on the clock, by what it went into."""
    next_evaluation_s: float | None
    target_forecast: Forecast | None
    target_s: float | None
    """Seconds to the target by the forecast."""
    ranks: tuple[Rank, ...]
    straggler: int | None
    """The rank that the others wait for."""
    straggler_phase: str | None
    """In which phase of a step, where the run measured it."""


def state_of(run: FollowedRun, ranks: Sequence[Rank] = (), earlier: Sequence[float] = ()) -> RunState:
    """Return where a run stands now; `earlier` is what runs of the same system took to the target, in samples."""
    facts, now, parameters = run.facts, time.time(), run.parameters()
    last: Row = next((run.rows[step] for step in reversed(run.rows)), {})
    going = (stands := status(run.log, facts)) == "running"
    end_ms = 1e3 * now if going else facts.stopped_ms or (facts.events()[-1].time_ms if facts.events() else None)
    elapsed = None if facts.started_ms is None or end_ms is None else max(0.0, (end_ms - facts.started_ms) / 1e3)
    speed = _speed(run)
    samples = max(last.get("samples", 0.0), samples_to_end(facts) or 0.0)
    silent, ahead = max(0.0, silence_s(run.log)), _next_evaluation(facts) if going else None
    # a GPU's steps are written only at evaluations: until then assume its last speed
    reached = min(ahead, samples + speed * silent) if ahead and speed else samples
    target = target_of(run.log, facts)
    expected = forecast(accuracies(facts), target, earlier) if target is not None and going else None
    slow = straggler(mean_times(run.rank_times)) if going else None
    return RunState(
        name=run.name,
        system=run.system,
        status=stands,
        seed=as_integer(parameters.get("run.seed")),
        commit=parameters.get("run.commit"),
        world_size=as_integer(parameters.get("run.world_size")),
        step=int(last.get("step", 0)),
        max_steps=_most_steps(parameters, run.batch),
        samples=samples,
        loss=last.get("loss"),
        learning_rate=last.get("lr"),
        grad_norm=last.get("grad_norm"),
        clipped=last.get("clipped"),
        samples_per_s=speed,
        accuracy=facts.evaluations[-1].accuracy if facts.evaluations else None,
        best_accuracy=facts.best_accuracy,
        target=target,
        elapsed_s=elapsed,
        silent_s=silent,
        phases_s=phases(run, end_ms),
        next_evaluation_s=(ahead - reached) / speed if ahead and speed else None,
        target_forecast=expected,
        target_s=_seconds(expected, reached, facts, speed),
        ranks=tuple(ranks),
        straggler=slow and slow.rank,
        straggler_phase=slow and slow.phase,
    )


def _most_steps(parameters: dict[str, Any], batch: int | None) -> int | None:
    """Return the steps after which the run gives up, by its limit of steps and that of samples: a smoke run's is 5."""
    steps, samples = (as_integer(parameters.get(name)) for name in ("schedule.max_steps", "evaluation.max_samples"))
    if samples is None or not batch:
        return steps
    most = -(-samples // batch)
    return most if steps is None else min(steps, most)


def earlier_runs(log: Path) -> list[float]:
    """Return the samples to the target of the runs beside `log`, of the same system and target, that reached it."""

    def kind(log: Path, facts: RunFacts) -> tuple[str, Any]:
        return system_name(log, facts), configured(log).get("evaluation.target")

    wanted, found = kind(log, RunFacts([])), []
    for other in log.parent.glob(LOG_PATTERN):
        with suppress(CannotJudge):
            facts = RunFacts(read_events(other))
            samples = samples_to_end(facts)
            if other != log and facts.status == "success" and samples and kind(other, facts) == wanted:
                found.append(samples)
    return found


def _speed(run: FollowedRun) -> float | None:
    """Samples/s of the last steps; the first of all is left out, because it warms up."""
    steps = list(islice(reversed(run.rows), _RECENT))[::-1]
    if len(steps) < 2:
        return None
    rows = [run.rows[step] for step in steps]
    step_s = median(row.get("step_ms", 0.0) for row in rows[1:]) / 1e3
    batch = (rows[-1].get("samples", 0.0) - rows[0].get("samples", 0.0)) / (steps[-1] - steps[0])
    return batch / step_s if step_s > 0 else None


def phases(run: FollowedRun, end_ms: float | None, samples: float = math.inf) -> dict[str, float]:
    """Return the seconds on the clock until `end_ms`, when `samples` were trained, by phase.

    What is in no phase is other: snapshots, and steps that no file has yet. Nothing before the clock starts. An
    evaluation counts before its end too.
    """
    facts = run.facts
    if facts.started_ms is None or end_ms is None:
        return {}
    starts, stops = (
        [event.time_ms for event in facts.all(key) if event.time_ms <= end_ms] for key in ("eval_start", "eval_stop")
    )
    rows = [row for row in run.rows.values() if row.get("samples", 0.0) <= samples]
    waiting = sum(row.get("load_wait_ms", 0.0) for row in rows) / 1e3
    known = {
        "start-up": startup_s(facts) or 0.0,
        "steps": max(0.0, sum(row.get("step_ms", 0.0) for row in rows) / 1e3 - waiting),
        "waiting for data": waiting,
        "evaluation": (sum(stops) + (len(starts) - len(stops)) * end_ms - sum(starts)) / 1e3,
    }
    return known | {"other": max(0.0, (end_ms - facts.started_ms) / 1e3 - sum(known.values()))}


def _next_evaluation(facts: RunFacts) -> float | None:
    """Training samples at the end of the block that has begun last."""
    begun = facts.all("block_start")
    if not begun:
        return None
    first, count = (begun[-1].metadata.get(name) for name in ("first_epoch_num", "epoch_count"))
    return float(first + count) if isinstance(first, int) and isinstance(count, int) else None


def _seconds(expected: Forecast | None, samples: float, facts: RunFacts, speed: float | None) -> float | None:
    """Return the seconds left at the present speed of steps, with as much evaluation per sample as so far."""
    if expected is None or not speed:
        return None
    trained = samples_to_end(facts)
    evaluated = evaluation_s(facts) / trained if trained else 0.0
    return max(0.0, expected.samples - samples) * (1 / speed + evaluated)
