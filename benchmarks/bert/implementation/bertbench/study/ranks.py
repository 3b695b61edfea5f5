"""Clip modes over numbers of ranks: every arm tuned, then run with the same seeds until the intervals are narrow.

Every run that ended is a line of trials.jsonl. A study that goes on reads them, and repeats none of them.
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from bertbench.common.atomic import write_state
from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.results.linefile import LineFile
from bertbench.study.compare import Difference, half_interval
from bertbench.study.ranks_definition import Arm, RanksDefinition, Values
from bertbench.study.ranks_trial import Outcome, RunTrial

_SAMPLER_SEED = 1  # the same for all arms: their random first trials try the same values
_TUNING_SEED = 1000  # and what follows it: none of these is compared, which counts from 1
_SPARE = 1.05  # finalists may take so much longer than tuning's patience: luck must not drop them


class Run(NamedTuple):
    """Which run an outcome is that of."""

    kind: str
    """`tuning`, `final` or `comparison`."""
    arm: str
    values: Values
    seed: int


@dataclass(frozen=True)
class Tuned:
    """What tuning chose for an arm."""

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
    """Share of the clipping decisions that made something smaller."""


@dataclass(frozen=True)
class Comparison:
    """A difference that the stopping rule asks about."""

    ranks: int
    difference: Difference
    reference: float
    """Mean samples to target of the arm that it is taken from."""
    seeds: int
    narrow: bool
    """Whether the interval is as narrow as the rule wants."""


class Study:
    """The runs of a study in one folder."""

    def __init__(
        self, definition: RanksDefinition, ranks: tuple[int, ...], folder: Path, run_trial: RunTrial, progress: Progress
    ) -> None:
        """Raises ConfigError if the folder holds another study, or `ranks` don't divide the global batch."""
        self._definition, self._run_trial, self._progress = definition, run_trial, progress
        self.arms = definition.arms(ranks)
        _claim(folder, definition)
        trials = folder / "trials.jsonl"
        self._known = _read(trials)
        self._lines = LineFile(trials)

    def compare(self) -> tuple[list[Tuned], list[Row], list[Comparison]]:
        """Tune, then run seed by seed until every interval is narrow, or the seeds are spent."""
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
        """Return what tuning tried, each with its samples to target; None where it missed or was stopped."""
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
            # a sampler anew for every trial: a search that goes on samples as one that was never interrupted
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
        """Return the outcome of a run, which is not run again if it ended before."""
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
        ours, theirs = samples_of(rows, arm.name), samples_of(rows, against)
        seeds = sorted(ours.keys() & theirs.keys())
        apart = [ours[seed] - theirs[seed] for seed in seeds]
        if (half := half_interval(apart)) is None:
            continue
        mean, reference = statistics.mean(apart), statistics.mean(theirs[seed] for seed in seeds)
        difference = Difference(arm.name, against, mean, mean - half, mean + half)
        narrow = half <= definition.stopping.half_width * reference
        found.append(Comparison(arm.ranks, difference, reference, len(seeds), narrow))
    return found


def half_share(one: Comparison) -> float:
    """Return half the interval's width as a share of the mean that the difference is taken from."""
    return (one.difference.high - one.difference.low) / 2 / one.reference


def samples_of(rows: Sequence[Row], arm: str) -> dict[int, float]:
    """Return an arm's samples to target by seed, where it was reached."""
    return {row.seed: row.samples_to_target for row in rows if row.arm == arm and row.samples_to_target is not None}


def _score(outcome: Outcome, limit: float) -> float:
    """Return samples to target; of a run that missed it more than any that reached it, the less accurate the more."""
    return limit * (2 - outcome.accuracy) if outcome.samples is None else outcome.samples


def _read(path: Path) -> dict[Run, Outcome]:
    known = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        values = Values(*(record[name] for name in Values._fields))
        run = Run(record["kind"], record["arm"], values, record["seed"])
        known[run] = Outcome(record["samples"], record["accuracy"], record["clipped"])
    return known


def _claim(folder: Path, definition: RanksDefinition) -> None:
    """Note in the folder which study it holds."""
    folder.mkdir(parents=True, exist_ok=True)
    note, content = folder / "definition.json", definition.model_dump(mode="json")
    if note.exists() and json.loads(note.read_text(encoding="utf-8")) != content:
        raise ConfigError(f"{folder}: holds another study, see {note.name} there; give --out another folder")
    write_state(note, content)
