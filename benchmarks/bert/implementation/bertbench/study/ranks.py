"""Compare clip modes by number of ranks: tune every arm, then run all with the same seeds until intervals are narrow.

Every finished run is a line of trials.jsonl. A resumed study reads them and repeats none.
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.progress import Progress
from bertbench.results.linefile import LineFile
from bertbench.study.compare import Difference, claim, paired_difference, samples_of
from bertbench.study.definition import read_study
from bertbench.study.ranks_definition import Arm, RanksDefinition, Values
from bertbench.study.ranks_trial import Outcome, RunTrial

_SAMPLER_SEED = 1  # the same for all arms: their random first trials try the same values
_TUNING_SEED = 1000  # and up; the comparison's seeds count from 1
_SPARE = 1.05  # finalists' limit over tuning's patience, so that noise drops none of them


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
    """A difference that the stopping rule checks."""

    ranks: int
    difference: Difference
    reference: float
    """Mean samples to target of the arm compared against."""
    seeds: int
    narrow: bool
    """Whether the interval meets the stopping rule."""


class Study:
    """The runs of a study in one folder."""

    def __init__(
        self, definition: RanksDefinition, ranks: tuple[int, ...], folder: Path, run_trial: RunTrial, progress: Progress
    ) -> None:
        """Raise ConfigError if the folder holds another study, or `ranks` don't divide the global batch."""
        self._definition, self._run_trial, self._progress = definition, run_trial, progress
        self.arms = definition.arms(ranks)
        # an older version's note lacks newer settings: reading it fills in their defaults
        claim(folder, definition.model_dump(mode="json"), _read_note)
        trials = folder / "trials.jsonl"
        self._known = _read(trials)
        self._lines = LineFile(trials)

    def compare(self) -> tuple[list[Tuned], list[Row], list[Comparison]]:
        """Tune, then run seed by seed until every interval is narrow or the seeds run out."""
        tuned = [Tuned(arm, self._tuned(arm)) for arm in self.arms]
        rows: list[Row] = []
        stopping = self._definition.stopping
        for seed in range(1, stopping.max_seeds + 1):
            for arm, values in ((one.arm, one.values) for one in tuned):
                outcome = self._outcome("comparison", arm, values, seed, math.inf)
                rows.append(
                    Row(
                        arm.name, arm.mode, arm.ranks, seed, outcome.samples, outcome.samples is not None,
                        outcome.clipped,
                    )
                )  # fmt: skip
            since = seed - stopping.first_look
            if since >= 0 and since % stopping.look_every == 0:
                found = comparisons(self._definition, self.arms, rows)
                self._progress.message(
                    f"look at {seed} seeds: half-widths "
                    + ", ".join(f"{one.difference.arm} {half_share(one):.1%}" for one in found)
                )
                if len(found) == len(self.arms) - 1 and all(one.narrow for one in found):  # all but `after`
                    break
        return tuned, rows, comparisons(self._definition, self.arms, rows)

    def tried(self, arm: Arm) -> list[tuple[Values, float | None]]:
        """Return the values that tuning tried with their samples to target, None if missed or stopped."""
        return [
            (run.values, outcome.samples)
            for run, outcome in self._known.items()
            if (run.kind, run.arm) == ("tuning", arm.name)
        ]

    def _tuned(self, arm: Arm) -> Values:
        """Spend the arm's budget and return its best values."""
        import optuna  # noqa: PLC0415 - an optional extra

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        tuning, space = self._definition.tuning, self._definition.space
        study = optuna.create_study()
        distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.FloatDistribution(bounds.low, bounds.high, log=True) for name, bounds in space
        }
        at_random, best = tuning.trials // 2, math.inf
        scored: list[tuple[float, Values]] = []
        for number in range(tuning.trials):
            # a new sampler for every trial: a resumed search then samples like an uninterrupted one
            study.sampler = optuna.samplers.TPESampler(n_startup_trials=at_random, seed=_SAMPLER_SEED + number)
            trial = study.ask(distributions)
            values = Values(**trial.params)
            outcome = self._outcome("tuning", arm, values, _TUNING_SEED, tuning.patience * best)
            best = min(best, outcome.samples or math.inf)
            score = _score(outcome, self._limit)
            scored.append((score, values))
            study.tell(trial, score)
        limit = tuning.patience * _SPARE * best
        finalists = [values for _, values in sorted(scored)[: tuning.finalists]]
        return min(
            finalists,
            key=lambda values: statistics.mean(
                _score(self._outcome("final", arm, values, _TUNING_SEED + place, limit), self._limit)
                for place in range(1, tuning.finalist_seeds + 1)
            ),
        )

    @property
    def _limit(self) -> float:
        return float(self._definition.schedule.max_steps * self._definition.global_batch_size)

    def _outcome(self, kind: str, arm: Arm, values: Values, seed: int, most_samples: float) -> Outcome:
        """Return a run's outcome; a finished run is not repeated."""
        run = Run(kind, arm.name, values, seed)
        if run not in self._known:
            outcome = self._run_trial(self._definition, arm, values, seed, most_samples)
            record = {"kind": kind, "arm": arm.name, **values._asdict(), "seed": seed, **asdict(outcome)}
            self._lines.append(json.dumps(record) + "\n")
            self._known[run] = outcome
            how = "missed or stopped" if outcome.samples is None else f"{outcome.samples:,.0f} samples"
            self._progress.message(f"{kind} {arm.name}, seed {seed}: {how}; {len(self._known)} runs so far")
        return self._known[run]


def comparisons(definition: RanksDefinition, arms: Sequence[Arm], rows: Sequence[Row]) -> list[Comparison]:
    """Return `before` against `after` and `bucket` against `before` for each number of ranks.

    Over the seeds with which both reached the target, if these are at least two.
    """
    found = []
    for arm in arms:
        if arm.mode not in ("before", "bucket"):
            continue
        against = "after" if arm.mode == "before" else f"before_{arm.ranks}"
        difference = paired_difference(rows, arm.name, against)
        if difference is None:
            continue
        theirs = samples_of(rows, against)
        seeds = samples_of(rows, arm.name).keys() & theirs.keys()
        reference = statistics.mean(theirs[seed] for seed in seeds)
        narrow = (difference.high - difference.low) / 2 <= definition.stopping.half_width * reference
        found.append(Comparison(arm.ranks, difference, reference, len(seeds), narrow))
    return found


def half_share(one: Comparison) -> float:
    """Return half the interval's width as a share of the reference arm's mean."""
    return (one.difference.high - one.difference.low) / 2 / one.reference


def _score(outcome: Outcome, limit: float) -> float:
    """Return samples to target; a run that missed it scores worse than all that reached it, ordered by accuracy."""
    return limit * (2 - outcome.accuracy) if outcome.samples is None else outcome.samples


def _read(path: Path) -> dict[Run, Outcome]:
    known = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        values = Values(*(record[name] for name in Values._fields))
        run = Run(record["kind"], record["arm"], values, record["seed"])
        known[run] = Outcome(record["samples"], record["accuracy"], record["clipped"])
    return known


def _read_note(note: Path) -> dict[str, Any]:
    return read_study(note, RanksDefinition).model_dump(mode="json")
