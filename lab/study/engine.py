"""Run a study: tune each configuration on the same budget, run all with the same seeds, compare samples to the target.

A study provides a definition and a function that runs one trial. The rest is here, in lab/journal.py and in
intervals.py.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertbench.common.intervals import holm, of_geometric_mean, of_mean
from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from lab.journal import Journal, Record
from lab.study.definition import Configuration, Definition, Prune, Values
from lab.study.intervals import (
    RATIOS,
    SAMPLES,
    SECONDS,
    Comparison,
    Row,
    Rows,
    compare_configurations,
    samples_by_seed,
    verdict,
)

TUNING_SEED = 1000
"""The first seed of runs for tuning; the seeds of comparisons start at 1."""
_MISSED = 1e12  # more samples than any run that reaches the target
_EDGE = 0.05  # share of a range's width, on its logarithmic scale


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended."""

    samples: float | None
    """The training samples at which accuracy reached the target; None if it didn't."""
    accuracy: float
    """The accuracy at the last evaluation."""
    clipped: float
    """The share of clipping decisions that reduced a gradient; the mean over steps."""
    clipped_steps: float
    """The share of steps in which at least one decision did."""
    seconds: float
    """The time of its steps up to the target, without evaluations."""
    course: Sequence[tuple[float, float]] = ()
    """The samples and the accuracy of each evaluation, where the search may prune the run by them."""


RunTrial = Callable[[Configuration, Values, int, float, Prune | None], TrialOutcome]
"""Runs a configuration with values and a seed, until the target, the end of the run, a number of samples, or, in
tuning, the evaluation at which it is pruned."""


class Study:
    """The trials of a study in one folder."""

    def __init__(self, definition: Definition, folder: Path, run_trial: RunTrial, progress: Progress) -> None:
        """Open the journal. Raises ConfigError if the folder belongs to another study."""
        self.definition = definition
        self.configurations = definition.configurations()
        self.journal = Journal(folder, definition)
        self.values: dict[str, Values] = {}
        """The values that tuning chose, by configuration."""
        self.narrowed: dict[str, dict[str, Any]] = {}
        """How their searches narrowed the ranges, by configuration (search.py)."""
        self._run_trial = run_trial
        self._progress = progress
        self._by_name = {configuration.name: configuration for configuration in self.configurations}

    def rows(self, seeds: Sequence[int]) -> list[Row]:
        """Tune every configuration and run it with these seeds.

        Runs are ordered by seed, so that an interrupted study has the same number for every configuration.
        """
        if not self.values:
            self.values = {configuration.name: self._tuned(configuration) for configuration in self.configurations}
        return [
            self._row(configuration, self.values[configuration.name], seed)
            for seed in seeds
            for configuration in self.configurations
        ]

    def comparisons(self, rows: Rows) -> list[Comparison]:
        """Compare each configuration with its references, if both reached the target with at least two common seeds."""
        compared = []
        for configuration in self.configurations:
            for against in configuration.against:
                pair = self._compared(rows, configuration, against)
                if pair:
                    compared.append(pair)
        return compared

    def record(self, rows: Rows) -> dict[str, Any]:
        """Return the study's results; `origin` is the code and machine of the last trial, `origins` those of all."""
        at_tuned_values = self.comparisons(rows)
        pairs = [*at_tuned_values, *self._at_equal_values(rows)]
        origins = self.journal.origins
        p_values = holm([pair["p"] for pair in pairs])
        decided = [
            {**pair, "holm_p": p_value, "verdict": verdict(pair, p_value)}
            for pair, p_value in zip(pairs, p_values, strict=True)
        ]
        comparisons = decided[: len(at_tuned_values)]
        return {
            "definition": self.definition.model_dump(mode="json"),
            "origin": origins[-1],
            "origins": origins,
            "comparisons": comparisons,
            "at_equal_values": decided[len(at_tuned_values) :],
            "pooled": self._pooled(comparisons) if self.definition.cells else [],
            "arms": [self._summary(configuration, rows) for configuration in self.configurations],
            "tuned": [
                {
                    "arm": tuned.name,
                    **self.values[tuned.name],
                    "at_edge": self._at_edge(tuned),
                    "narrowed": self.narrowed[tuned.name],
                }
                for tuned in self.configurations
                if tuned.space
            ],
            "rows": rows,
        }

    def _row(self, configuration: Configuration, values: Values, seed: int) -> Row:
        record = self._trial("comparison", configuration, values, seed)
        reached = record["samples"] is not None
        return {
            "arm": configuration.name,
            **configuration.cell,
            **configuration.settings,
            "seed": seed,
            SAMPLES: record["samples"],
            SECONDS: record["seconds"] if reached else None,
            "reached": reached,
            **{name: record[name] for name in ("accuracy", "clipped", "clipped_steps")},
        }

    def _tuned(self, configuration: Configuration) -> Values:
        """Spend the configuration's budget on tuning, and return its best values."""
        tuning = self.definition.tuning
        if tuning is None or not configuration.space:
            return {}
        from lab.study.search import Search  # noqa: PLC0415 - Optuna is an optional extra

        best = math.inf

        def score(values: Values, prune: Prune) -> float | None:
            nonlocal best
            least = 0.0 if tuning.at_least is None else values[tuning.at_least]
            samples = []
            for seed in range(TUNING_SEED, TUNING_SEED + tuning.seeds):
                record = self._trial("tuning", configuration, values, seed, tuning.patience * best, prune)
                pruned = any(prune(*evaluation) for evaluation in record["course"])
                if record["samples"] is None and pruned:
                    return None
                if record["samples"] is None:
                    return _MISSED * (2 - record["accuracy"])  # higher for less accurate runs
                samples.append(max(record["samples"], least))
            mean = statistics.mean(samples)
            best = min(best, mean)
            return mean

        search = Search(configuration.space, tuning.trials, derive(1, str(configuration.cell)) % 2**31)
        values = search.best(score)
        self.narrowed[configuration.name] = search.narrowed()
        return values

    def _at_edge(self, configuration: Configuration) -> list[str]:
        """Return the settings whose value is at the edge of its range: a wider range may contain better values."""
        values = self.values[configuration.name]
        places = {name: bounds.place(values[name]) for name, bounds in configuration.space.items()}
        return [name for name, place in places.items() if not _EDGE <= place <= 1 - _EDGE]

    def _at_equal_values(self, rows: Rows) -> list[Comparison]:
        """Run both sides of each comparison with the values of either side and the seeds of `rows`, and compare.

        A comparison whose sides were tuned to the same values is one of equal values already, and isn't repeated.
        """
        if not self.definition.equal_values:
            return []
        seeds = list(dict.fromkeys(row["seed"] for row in rows))
        compared = []
        for configuration in self.configurations:
            for against in configuration.against:
                sides = (configuration, self._by_name[against])
                if self.values[configuration.name] == self.values[against]:
                    continue
                for values_of in sides:
                    values = self.values[values_of.name]
                    rows_at_values = [self._row(side, values, seed) for side in sides for seed in seeds]
                    pair = self._compared(rows_at_values, configuration, against)
                    if pair:
                        compared.append({"values_of": values_of.name, **pair})
        return compared

    def _compared(self, rows: Rows, configuration: Configuration, against: str) -> Comparison | None:
        samples = compare_configurations(rows, configuration.name, against, SAMPLES)
        seconds = compare_configurations(rows, configuration.name, against, SECONDS)
        if samples is None or seconds is None:
            return None
        return {
            "kind": configuration.kind,
            **configuration.cell,
            **configuration.settings,
            **samples,
            **{f"seconds_{ratio}": seconds[ratio] for ratio in RATIOS},
        }

    def _pooled(self, compared: Sequence[Comparison]) -> list[dict[str, Any]]:
        """Return the means of ratios over all cells and over the cells of each level; each cell is tuned separately."""
        by_names = {(pair["difference"]["arm"], pair["difference"]["against"]): pair for pair in compared}
        groups = defaultdict[tuple[str, str, str], list[Comparison | None]](list)
        for configuration in self.configurations:
            for against in configuration.against:
                pair = by_names.get((configuration.name, against))
                kind_against = self._by_name[against].kind
                for cells in ("all", *map(" ".join, configuration.cell.items())):
                    groups[configuration.kind, kind_against, cells].append(pair)
        return [
            _mean_over_cells(kind, kind_against, cells, group) for (kind, kind_against, cells), group in groups.items()
        ]

    def _summary(self, configuration: Configuration, rows: Rows) -> dict[str, Any]:
        rows_of_it = [row for row in rows if row["arm"] == configuration.name]
        samples = list(samples_by_seed(rows, configuration.name, SAMPLES).values())
        seconds = list(samples_by_seed(rows, configuration.name, SECONDS).values())
        return {
            "arm": configuration.name,
            **configuration.cell,
            "values": self.values[configuration.name],
            "seeds": len(rows_of_it),
            "reached": len(samples),
            SAMPLES: statistics.mean(samples) if samples else None,
            "half_width": of_mean(samples).half_width if samples else None,
            SECONDS: statistics.mean(seconds) if seconds else None,
            "clipped": statistics.mean(row["clipped"] for row in rows_of_it),
        }

    def _trial(
        self,
        kind: str,
        configuration: Configuration,
        values: Values,
        seed: int,
        most: float = math.inf,
        prune: Prune | None = None,
    ) -> Record:
        def run() -> dict[str, Any]:
            outcome = self._run_trial(configuration, values, seed, most, prune)
            how = "missed or stopped" if outcome.samples is None else f"{outcome.samples:,.0f} samples"
            self._progress.message(f"{kind} {configuration.name}, seed {seed}: {how}")
            return asdict(outcome)

        return self.journal.trial({"kind": kind, "arm": configuration.name, **values, "seed": seed}, run)


def _mean_over_cells(kind: str, against: str, cells: str, group: Sequence[Comparison | None]) -> dict[str, Any]:
    """Return the geometric mean over cells; `group` has None for a cell in which a configuration missed the target."""
    counted = [pair for pair in group if pair]
    samples, low, high = of_geometric_mean([pair["ratio"] for pair in counted])
    seconds, seconds_low, seconds_high = of_geometric_mean([pair["seconds_ratio"] for pair in counted])
    verdict = "no difference shown"
    if len(counted) < len(group) or any(pair["missed"] for pair in counted):
        verdict = "not decided: runs missed the target"
    elif low is not None and low > 1:
        verdict = "more samples"
    elif high is not None and high < 1:
        verdict = "fewer samples"
    return {
        "arm": kind,
        "against": against,
        "cells": cells,
        "counted": len(counted),
        "total": len(group),
        "samples": samples,
        "low": low,
        "high": high,
        "seconds": seconds,
        "seconds_low": seconds_low,
        "seconds_high": seconds_high,
        "verdict": verdict,
    }
