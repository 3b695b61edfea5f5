"""Compare clip modes by number of ranks: tune every arm, then run all with the same seeds until intervals are narrow.

A search of few runs finds better values for one arm than for another by luck. So every comparison is repeated with both
arms at the same values: only the clip mode differs there.

Every finished run is a line of trials.jsonl. A resumed study reads them and repeats none.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.progress import Progress
from lab.study.compare import Difference, claim_study
from lab.study.journal import Journal
from lab.study.paired import paired
from lab.study.ranks_definition import Arm, RanksDefinition, Values
from lab.study.ranks_trial import Outcome, RunTrial
from lab.study.search import SPARE, TUNING_SEED, score_of, search

_SAMPLER_SEED = 1  # the same for all arms: their random first trials try the same values


class Run(NamedTuple):
    """The key of an outcome: its kind, arm, values and seed."""

    kind: str
    """`tuning`, `final` or `comparison`."""
    arm: str
    values: Values
    seed: int


@dataclass(frozen=True)
class Tuned:
    """The values that tuning chose for an arm."""

    arm: Arm
    values: Values


@dataclass(frozen=True)
class Row:
    """One seed of one arm."""

    arm: str
    mode: str
    ranks: int
    seed: int
    samples_to_target: float | None
    reached: bool
    clipped: float
    """Share of clipping decisions that reduced a gradient."""


@dataclass(frozen=True)
class Comparison:
    """A difference between an arm and its reference arm."""

    ranks: int
    difference: Difference
    reference: float
    """Mean samples to target of the arm compared against."""
    seeds: int
    narrow: bool
    """Whether the interval meets the stopping rule."""


class Found(NamedTuple):
    """The results of a study."""

    tuned: list[Tuned]
    rows: list[Row]
    comparisons: list[Comparison]
    """Every arm at its own tuned values; the stopping rule checks these."""
    equal_rows: list[Row]
    """Reference arms at the values of the arms that are compared with them, named `<reference>_as_<arm>`."""
    at_equal_values: list[Comparison]


class Study:
    """The runs of a study in one folder."""

    def __init__(
        self, definition: RanksDefinition, ranks: tuple[int, ...], folder: Path, run_trial: RunTrial, progress: Progress
    ) -> None:
        """Raise ConfigError if the folder holds another study, or `ranks` don't divide the global batch."""
        self._definition, self._run_trial, self._progress = definition, run_trial, progress
        self.arms = definition.arms(ranks)
        claim_study(folder, definition)
        self._journal = Journal(folder / "trials.jsonl")
        self._known = dict(map(_known, self._journal.records))

    def compare(self) -> Found:
        """Tune, run seed by seed until every interval is narrow or the seeds run out, then repeat at equal values."""
        tuned = [Tuned(arm, self._tuned(arm)) for arm in self.arms]
        rows: list[Row] = []
        stopping = self._definition.stopping
        for seed in range(1, stopping.max_seeds + 1):
            rows += [self._row(one.arm, one.values, seed) for one in tuned]
            since = seed - stopping.first_look
            if since >= 0 and since % stopping.look_every == 0:
                found = self._comparisons(rows)
                self._progress.message(
                    f"look at {seed} seeds: half-widths "
                    + ", ".join(f"{one.difference.arm} {half_share(one):.1%}" for one in found)
                )
                if len(found) == len(self.arms) - 1 and all(one.narrow for one in found):  # all but `after`
                    break
        return Found(tuned, rows, self._comparisons(rows), *self._at_equal_values(tuned, rows))

    def _at_equal_values(self, tuned: Sequence[Tuned], rows: Sequence[Row]) -> tuple[list[Row], list[Comparison]]:
        """Run each arm's reference arm with the arm's values and the seeds of `rows`, and compare."""
        arms, equal_rows, found = {arm.name: arm for arm in self.arms}, [], []
        for one in tuned:
            if one.arm.reference:
                own, reference = [row for row in rows if row.arm == one.arm.name], arms[one.arm.reference]
                theirs = [self._row(reference, one.values, row.seed) for row in own]
                found += comparisons(self._definition, [one.arm], own + theirs)
                equal_rows += [replace(row, arm=f"{row.arm}_as_{one.arm.name}") for row in theirs]
        return sorted(equal_rows, key=lambda row: row.seed), found

    def _row(self, arm: Arm, values: Values, seed: int) -> Row:
        outcome = self._outcome("comparison", arm, values, seed, math.inf)
        return Row(arm.name, arm.mode, arm.ranks, seed, outcome.samples, outcome.samples is not None, outcome.clipped)

    def _comparisons(self, rows: Sequence[Row]) -> list[Comparison]:
        return comparisons(self._definition, self.arms, rows)

    def tried(self, arm: Arm) -> list[tuple[Values, float | None]]:
        """Return the values that tuning tried with their samples to target, None if missed or stopped."""
        return [
            (run.values, outcome.samples)
            for run, outcome in self._known.items()
            if (run.kind, run.arm) == ("tuning", arm.name)
        ]

    def _tuned(self, arm: Arm) -> Values:
        """Spend the arm's budget and return its best values."""
        tuning, best = self._definition.tuning, math.inf

        def score(params: dict[str, float]) -> float:
            nonlocal best
            outcome = self._outcome("tuning", arm, Values(**params), TUNING_SEED, tuning.patience * best)
            best = min(best, outcome.samples or math.inf)
            return score_of(outcome.samples, outcome.accuracy, self._limit)

        tried = search(dict(self._definition.space), tuning.trials, _SAMPLER_SEED, score)
        finalists = [Values(**params) for _, params in tried[: tuning.finalists]]
        limit = tuning.patience * SPARE * best

        def final_score(values: Values) -> float:
            seeds = range(TUNING_SEED + 1, TUNING_SEED + 1 + tuning.finalist_seeds)
            outcomes = [self._outcome("final", arm, values, seed, limit) for seed in seeds]
            return statistics.mean(score_of(one.samples, one.accuracy, self._limit) for one in outcomes)

        return min(finalists, key=final_score)

    @property
    def _limit(self) -> float:
        return float(self._definition.schedule.max_steps * self._definition.global_batch_size)

    def _outcome(self, kind: str, arm: Arm, values: Values, seed: int, most_samples: float) -> Outcome:
        """Return a run's outcome; a finished run is not repeated."""
        run = Run(kind, arm.name, values, seed)
        if run not in self._known:
            outcome = self._run_trial(self._definition, arm, values, seed, most_samples)
            self._journal.add({"kind": kind, "arm": arm.name, **values._asdict(), "seed": seed, **asdict(outcome)})
            self._known[run] = outcome
            how = "missed or stopped" if outcome.samples is None else f"{outcome.samples:,.0f} samples"
            self._progress.message(f"{kind} {arm.name}, seed {seed}: {how}; {len(self._known)} runs so far")
        return self._known[run]


def comparisons(definition: RanksDefinition, arms: Sequence[Arm], rows: Sequence[Row]) -> list[Comparison]:
    """Return each arm against its reference: `before` against `after`, `bucket` against `before` of as many ranks.

    Over the seeds with which both reached the target, if these are at least two.
    """
    found = []
    for arm in arms:
        if arm.reference and (one := paired(rows, arm.name, arm.reference)):
            _, low, high = one.shares
            narrow = (high - low) / 2 <= definition.stopping.half_width
            found.append(Comparison(arm.ranks, one.difference, one.reference, one.seeds, narrow))
    return found


def half_share(one: Comparison) -> float:
    """Return half the interval's width as a share of the reference arm's mean."""
    return (one.difference.high - one.difference.low) / 2 / one.reference


def _known(record: dict[str, Any]) -> tuple[Run, Outcome]:
    values = Values(*(record[name] for name in Values._fields))
    run = Run(record["kind"], record["arm"], values, record["seed"])
    return run, Outcome(record["samples"], record["accuracy"], record["clipped"])
