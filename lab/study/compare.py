"""Run a study: tune every arm, run all with the same seeds, and compare their samples to target."""

import json
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scipy import stats

from bertbench.common.atomic import write_state
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.common.section import Section
from bertbench.config import load_system
from bertbench.results.files import ResultFiles
from lab.study.definition import Definition, read_study
from lab.study.trial import Outcome, Trial, Watch, run_trial, tuned_file

_CONFIDENCE = 0.95


class SeedRow(Protocol):
    """The fields that `paired_difference` reads from one seed of one arm."""

    @property
    def arm(self) -> str:
        """Name of the arm."""

    @property
    def seed(self) -> int:
        """Seed of the run."""

    @property
    def samples_to_target(self) -> float | None:
        """None if the target was not reached."""


@dataclass(frozen=True)
class Row:
    """One seed of one arm."""

    arm: str
    seed: int
    samples_to_target: int | None
    """None if the target was not reached."""
    reached: bool
    clipped_steps: float
    """Share of the steps in which clipping reduced a gradient."""


@dataclass(frozen=True)
class Summary:
    """One arm over its seeds; samples to target count only the seeds that reached it."""

    arm: str
    values: dict[str, float]
    """Values that tuning chose."""
    seeds: int
    reached: int
    mean: float | None
    half_interval: float | None
    """Half the width of the mean's 95 % interval; None with fewer than 2 seeds."""
    clipped_steps: float


@dataclass(frozen=True)
class Difference:
    """Samples of one arm minus those of another with the same seed: mean and 95 % interval.

    The seed fixes initial weights and the order of the data, so pairing cancels much of the noise.
    """

    arm: str
    against: str
    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Return the verdict in words: only an interval without 0 shows a difference."""
        return in_words(self.low, self.high, 0)


def in_words(low: float | None, high: float | None, equal: float) -> str:
    """Return what an interval of samples shows: a difference only if it excludes `equal`; None is an open end."""
    if low is not None and low > equal:
        return "more samples"
    return "fewer samples" if high is not None and high < equal else "no difference shown"


class _Stopped(Exception):  # noqa: N818 - a circumstance, not an error
    """The study ends before this trial."""


def run_study(definition: Definition, folder: Path, seeds: int, parallel: int, progress: Progress) -> list[Row]:
    """Tune and run every arm, `parallel` trials at a time; skip trials that `folder` already holds.

    Raises ConfigError if the folder holds another study, RunError if a trial fails.
    """
    trial_system = load_system(definition.system).model_dump(mode="json", by_alias=True)
    claim(folder, {**definition.model_dump(mode="json"), "trial": trial_system})
    stop = threading.Event()
    total = len(definition.arms) * (definition.tuning_trials + seeds)

    def run(trial: Trial, watch: Watch) -> Outcome:
        """Run a trial that ends soon after `stop` is set."""
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
        from lab.study.tune import tune  # noqa: PLC0415 - Optuna is an optional extra

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
    """Return the paths of the run of an arm with this seed."""
    return ResultFiles(folder / "runs" / arm / f"result_{seed}.txt")


def row_of(arm: str, seed: int, outcome: Outcome) -> Row:
    """Return the outcome as the study reports it."""
    return Row(arm, seed, outcome.samples if outcome.reached else None, outcome.reached, outcome.clipped_steps)


def summarize(definition: Definition, folder: Path, rows: Sequence[Row]) -> list[Summary]:
    """Return every arm's mean and interval."""
    summaries = []
    for arm in definition.arms:
        own = [row for row in rows if row.arm == arm]
        tuned = json.loads(tuned_file(folder, arm).read_text(encoding="utf-8"))
        samples = list(samples_of(rows, arm).values())
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
    """Return the definition's comparisons, over the seeds with which both arms reached the target (at least two)."""
    found = []
    for comparison in definition.comparisons:
        difference = paired_difference(rows, comparison.arm, comparison.against)
        if difference is not None:
            found.append(difference)
    return found


def paired_difference(rows: Sequence[SeedRow], arm: str, against: str) -> Difference | None:
    """Return the difference of two arms over the seeds with which both reached the target; None for fewer than 2."""
    ours, theirs = samples_of(rows, arm), samples_of(rows, against)
    apart = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if (half := half_interval(apart)) is None:
        return None
    mean = statistics.mean(apart)
    return Difference(arm, against, mean, mean - half, mean + half)


def samples_of(rows: Sequence[SeedRow], arm: str) -> dict[int, float]:
    """Return an arm's samples to target by seed, where it was reached."""
    return {row.seed: row.samples_to_target for row in rows if row.arm == arm and row.samples_to_target is not None}


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the width of a mean's 95 % interval, by Student's t; None for fewer than 2 values."""
    if len(values) < 2:
        return None
    quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)
    return float(quantile * statistics.stdev(values) / len(values) ** 0.5)


def _value(content: dict[str, dict[str, float]], name: str) -> float:
    section, key = name.split(".")
    return content[section][key]


def claim(folder: Path, content: Mapping[str, Any], held: Callable[[Path], Mapping[str, Any]] | None = None) -> None:
    """Record in the folder which study it holds; `held` reads an existing record if it isn't plain JSON.

    Raises ConfigError if the folder holds another study.
    """
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "definition.json"
    if note.exists() and (held(note) if held else json.loads(note.read_text(encoding="utf-8"))) != content:
        raise ConfigError(f"{folder}: holds another study (see {note.name}); give --out another folder")
    write_state(note, content)


def claim_study(folder: Path, definition: Section) -> None:
    """Record a study in the folder like `claim`; an older record's missing settings get their defaults."""
    kind = type(definition)
    claim(folder, definition.model_dump(mode="json"), lambda note: read_study(note, kind).model_dump(mode="json"))
