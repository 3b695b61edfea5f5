"""A study: every arm tuned, then run with the same seeds; samples to target, and what the arms differ by."""

import json
import statistics
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from bertbench.config import load_system
from bertbench.data.state import write_state
from bertbench.errors import ConfigError
from bertbench.progress import Progress
from bertbench.results import ResultFiles
from bertbench.study.definition import Definition
from bertbench.study.trial import Outcome, Trial, Watch, run_trial, tuned_file

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Row:
    """One seed of one arm."""

    arm: str
    seed: int
    samples_to_target: int | None
    """None if the target was not reached."""
    reached: bool
    clipped_steps: float
    """Share of the steps in which clipping made something smaller."""


@dataclass(frozen=True)
class Summary:
    """One arm over its seeds; samples to target are those of the seeds that reached it."""

    arm: str
    values: dict[str, float]
    """What tuning found."""
    seeds: int
    reached: int
    mean: float | None
    half_interval: float | None
    """Half the width of the mean's 95 % interval by Student's t; None with fewer than 2 seeds."""
    clipped_steps: float


@dataclass(frozen=True)
class Difference:
    """Mean samples of an arm less those of another, with Welch's 95 % interval."""

    arm: str
    against: str
    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """In words: only an interval without 0 shows a difference."""
        if self.low > 0:
            return "more samples"
        return "fewer samples" if self.high < 0 else "no difference shown"


class _Stopped(Exception):  # noqa: N818 - a circumstance, not an error
    """The study ends before this trial."""


def run_study(definition: Definition, folder: Path, seeds: int, parallel: int, progress: Progress) -> list[Row]:
    """Tune and run every arm, `parallel` trials at a time; what `folder` holds already is not run again.

    Raises ConfigError if the folder holds another study, RunError if a trial fails.
    """
    _claim(folder, definition)
    stop = threading.Event()
    total = len(definition.arms) * (definition.tuning_trials + seeds)

    def run(trial: Trial, watch: Watch) -> Outcome:
        """A trial that ends soon after `stop`."""
        progress.say(f"{trial.name} starts")

        def told(samples: int, accuracy: float) -> bool:
            if stop.is_set():
                raise _Stopped
            return watch(samples, accuracy)

        outcome = run_trial(trial, told, parallel)
        how = "reached" if outcome.reached else "not reached"
        ended = len(list(folder.glob("**/outcome.json")))
        progress.say(f"{trial.name}: target {how}, {outcome.samples:,} samples; {ended} of {total} trials")
        return outcome

    def arm_rows(arm: str) -> list[Row]:
        from bertbench.study.tune import tune  # noqa: PLC0415 - Optuna is an optional extra

        tune(definition, arm, folder, run)
        system = load_system(str(tuned_file(folder, arm)))
        rows = []
        for seed in range(1, seeds + 1):
            trial = Trial(f"{arm}, seed {seed}", system, seed, files_of(folder, arm, seed))
            rows.append(row_of(arm, seed, Outcome.read(trial.files) or run(trial, lambda *_: False)))
        return rows

    with ThreadPoolExecutor(parallel) as threads:
        running = {arm: threads.submit(arm_rows, arm) for arm in definition.arms}
        try:
            for arm in as_completed(running.values()):
                arm.result()
        except BaseException:
            stop.set()
            threads.shutdown(cancel_futures=True)
            raise
    return [row for arm in running.values() for row in arm.result()]


def files_of(folder: Path, arm: str, seed: int) -> ResultFiles:
    """Where the run of an arm with this seed is."""
    return ResultFiles(folder / "runs" / arm / f"result_{seed}.txt")


def row_of(arm: str, seed: int, outcome: Outcome) -> Row:
    """The outcome as the study reports it."""
    return Row(arm, seed, outcome.samples if outcome.reached else None, outcome.reached, outcome.clipped_steps)


def summarize(definition: Definition, folder: Path, rows: Sequence[Row]) -> list[Summary]:
    """Every arm's mean and interval."""
    summaries = []
    for arm in definition.arms:
        own = [row for row in rows if row.arm == arm]
        tuned = json.loads(tuned_file(folder, arm).read_text(encoding="utf-8"))
        samples = _samples(rows, arm)
        half = None
        if len(samples) > 1:
            quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, len(samples) - 1)
            half = float(quantile * statistics.stdev(samples) / len(samples) ** 0.5)
        summaries.append(
            Summary(
                arm,
                {name: _value(tuned, name) for name in definition.space},
                len(own),
                len(samples),
                statistics.mean(samples) if samples else None,
                half,
                round(statistics.mean(row.clipped_steps for row in own), 4),
            )
        )
    return summaries


def differences(definition: Definition, rows: Sequence[Row]) -> list[Difference]:
    """What the definition compares, where both arms reached the target at least twice."""
    found = []
    for comparison in definition.comparisons:
        ours, theirs = (_samples(rows, arm) for arm in (comparison.arm, comparison.against))
        if min(len(ours), len(theirs)) < 2:
            continue
        mean = statistics.mean(ours) - statistics.mean(theirs)
        low = high = mean
        if len({*ours}) > 1 or len({*theirs}) > 1:
            low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(_CONFIDENCE)
        found.append(Difference(comparison.arm, comparison.against, mean, float(low), float(high)))
    return found


def _samples(rows: Sequence[Row], arm: str) -> list[int]:
    return [row.samples_to_target for row in rows if row.arm == arm and row.samples_to_target is not None]


def _value(content: dict[str, dict[str, float]], name: str) -> float:
    section, key = name.split(".")
    return content[section][key]


def _claim(folder: Path, definition: Definition) -> None:
    """Note in the folder which study it holds, its system included."""
    folder.mkdir(parents=True, exist_ok=True)
    note, system = folder / "definition.json", load_system(definition.system)
    content = {**definition.model_dump(mode="json"), "trial": system.model_dump(mode="json", by_alias=True)}
    if note.exists() and json.loads(note.read_text(encoding="utf-8")) != content:
        raise ConfigError(f"{folder}: holds another study, see {note.name} there; give --out another folder")
    write_state(note, content)
