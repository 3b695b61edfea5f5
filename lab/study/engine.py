"""Run a study: tune every arm on one budget, run all with the same seeds, and compare their samples to target.

A study gives its arms, its budget, and a function that runs one trial; the rest is here, in journal.py, intervals.py
and page.py.
"""

import math
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.progress import Progress
from bertbench.common.section import Section
from lab.study.definition import Range, Stopping, Tuning
from lab.study.intervals import Comparison, Row, compare
from lab.study.journal import Journal, Record
from lab.study.search import SPARE, TUNING_SEED, score_of, search

_SAMPLER_SEED = 1  # the same for all arms: their random first trials try the same values

Values = dict[str, float]
"""What tuning chose for an arm."""


@dataclass(frozen=True)
class Arm:
    """What a study compares."""

    name: str
    choices: Mapping[str, Any]
    """What sets it apart; its rows repeat these."""
    against: tuple[str, ...] = ()
    """Names of the arms that it is compared with."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    samples: float | None
    """Training samples at which accuracy reached the target; None if it was missed."""
    accuracy: float
    """At the last evaluation."""
    clipped: float
    """Share of clipping decisions that reduced a gradient, mean over the steps."""
    clipped_steps: float
    """Share of the steps in which one did."""


RunTrial = Callable[[Arm, Values, int, float], Outcome]
"""Runs an arm with values and a seed until the target, its end, or this many samples."""


class Budget(NamedTuple):
    """What is searched for every arm, and by how many runs."""

    space: Mapping[str, Range]
    tuning: Tuning
    limit: float
    """Samples after which a run ends."""


@dataclass
class Study:
    """The trials of a study in one folder."""

    definition: Section
    folder: Path
    arms: Sequence[Arm]
    run_trial: RunTrial
    progress: Progress
    budget: Budget | None = None
    """None where the definition fixes all values."""
    parallel: int = 1
    """Trials at a time."""
    ending: threading.Event = field(default_factory=threading.Event)
    """Set when a trial failed: the others should end."""

    def __post_init__(self) -> None:
        """Open the journal; raises ConfigError if the folder holds another study."""
        self.journal = Journal(self.folder, self.definition)
        self._values: dict[str, Values] = {}

    def rows(self, seeds: Sequence[int]) -> list[Row]:
        """Tune every arm and run it with these seeds.

        Seed by seed, so that a stopped study has as many of every arm.
        """
        self._values = dict(
            zip((arm.name for arm in self.arms), self._all(self.tuned, [(arm,) for arm in self.arms]), strict=True)
        )
        runs = [(arm, self._values[arm.name], seed) for seed in seeds for arm in self.arms]
        return self._all(self.row, runs)

    def rows_until(self, stopping: Stopping) -> list[Row]:
        """Add seeds until every interval is narrow or the seeds run out."""
        rows: list[Row] = []
        for seed in range(1, stopping.max_seeds + 1):
            rows += self.rows([seed])
            since = seed - stopping.first_look
            if since >= 0 and since % stopping.look_every == 0:
                found = self.comparisons(rows)
                widths = ", ".join(f"{pair.difference.arm} {pair.half_width:.1%}" for pair in found)
                self.progress.message(f"look at {seed} seeds: half-widths {widths}")
                complete = len(found) == sum(len(arm.against) for arm in self.arms)
                if complete and all(pair.half_width <= stopping.half_width for pair in found):
                    break
        return rows

    def row(self, arm: Arm, values: Values, seed: int) -> Row:
        """Run an arm with values and a seed."""
        record = self._trial("comparison", arm, values, seed)
        samples = record["samples"]
        return {
            "arm": arm.name,
            **arm.choices,
            "seed": seed,
            "samples_to_target": samples,
            "reached": samples is not None,
            **{name: record[name] for name in ("accuracy", "clipped", "clipped_steps")},
        }

    def comparisons(self, rows: Sequence[Row]) -> list[Comparison]:
        """Return every arm against its reference arms, where at least two seeds of both reached the target."""
        pairs = [compare(rows, arm.name, against) for arm in self.arms for against in arm.against]
        return [pair for pair in pairs if pair]

    def values(self, arm: str) -> Values:
        """Return what tuning chose for an arm."""
        return self._values[arm]

    def tried(self, arm: str) -> list[Record]:
        """Return the tuning trials of an arm."""
        return [record for record in self.journal.records if (record["kind"], record["arm"]) == ("tuning", arm)]

    def tuned(self, arm: Arm) -> Values:
        """Spend the arm's budget and return its best values."""
        if self.budget is None or arm.name in self._values:
            return self._values.get(arm.name, {})
        (space, tuning, most), best = self.budget, math.inf

        def score(values: Values) -> float:
            nonlocal best
            record = self._trial("tuning", arm, values, TUNING_SEED, tuning.patience * best)
            best = min(best, record["samples"] or math.inf)
            return score_of(record["samples"], record["accuracy"], most)

        finalists = [values for _, values in search(space, tuning.trials, _SAMPLER_SEED, score)][: tuning.finalists]
        limit = tuning.patience * SPARE * best

        def final_score(values: Values) -> float:
            seeds = range(TUNING_SEED + 1, TUNING_SEED + 1 + tuning.finalist_seeds)
            records = [self._trial("final", arm, values, seed, limit) for seed in seeds]
            return statistics.mean(score_of(record["samples"], record["accuracy"], most) for record in records)

        return min(finalists, key=final_score) if len(finalists) > 1 else finalists[0]

    def _trial(self, kind: str, arm: Arm, values: Values, seed: int, most: float = math.inf) -> Record:
        def run() -> dict[str, Any]:
            outcome = self.run_trial(arm, values, seed, most)
            if self.ending.is_set():
                raise CancelledError  # it may have been cut short
            how = "missed or stopped" if outcome.samples is None else f"{outcome.samples:,.0f} samples"
            self.progress.message(f"{kind} {arm.name}, seed {seed}: {how}")
            return asdict(outcome)

        return self.journal.trial({"kind": kind, "arm": arm.name, **values, "seed": seed}, run)

    def _all(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a function with each of `arguments`, `parallel` at a time; the first failure ends all."""
        with ThreadPoolExecutor(self.parallel) as threads:
            running = [threads.submit(function, *given) for given in arguments]
            try:
                for call in as_completed(running):
                    call.result()
            except BaseException:
                self.ending.set()
                threads.shutdown(cancel_futures=True)
                raise
        return [call.result() for call in running]
