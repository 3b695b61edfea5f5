"""A study: every arm tuned, then run with the same seeds; samples to target, and what the arms differ by."""

import json
import statistics
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from bertbench.common.atomic import write_state
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.config import load_system
from bertbench.results.files import ResultFiles
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
    """Half the width of the mean's 95 % interval; None with fewer than 2 seeds."""
    clipped_steps: float


@dataclass(frozen=True)
class Difference:
    """Samples of an arm less those of another with the same seed: mean and 95 % interval.

    The seed fixes initial weights and order of the data, so that much of its luck is common to both.
    """

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
        progress.message(f"{trial.name} starts")

        def record(samples: int, accuracy: float) -> bool:
            if stop.is_set():
                raise _Stopped
            return watch(samples, accuracy)

        outcome = run_trial(trial, record, parallel)
        how = "reached" if outcome.reached else "not reached"
        ended = len(list(folder.glob("**/outcome.json")))
        progress.message(f"{trial.name}: target {how}, {outcome.samples:,} samples; {ended} of {total} trials")
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
        samples = list(_samples(rows, arm).values())
        summaries.append(
            Summary(
                arm,
                {name: _value(tuned, name) for name in definition.space},
                len(own),
                len(samples),
                statistics.mean(samples) if samples else None,
                half_interval(samples),
                round(statistics.mean(row.clipped_steps for row in own), 4),
            )
        )
    return summaries


def differences(definition: Definition, rows: Sequence[Row]) -> list[Difference]:
    """What the definition compares, over the seeds in which both arms reached the target, if these are at least two."""
    found = []
    for comparison in definition.comparisons:
        ours, theirs = (_samples(rows, arm) for arm in (comparison.arm, comparison.against))
        apart = [ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]
        if (half := half_interval(apart)) is not None:
            mean = statistics.mean(apart)
            found.append(Difference(comparison.arm, comparison.against, mean, mean - half, mean + half))
    return found


def _samples(rows: Sequence[Row], arm: str) -> dict[int, int]:
    """Samples to target of an arm by seed, where it was reached."""
    return {row.seed: row.samples_to_target for row in rows if row.arm == arm and row.samples_to_target is not None}


def half_interval(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % interval of a mean, by Student's t; None of fewer than 2 values."""
    if len(values) < 2:
        return None
    quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)
    return float(quantile * statistics.stdev(values) / len(values) ** 0.5)


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
