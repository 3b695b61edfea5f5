"""Run a study: tune every arm on one budget, run all with the same seeds, and compare their samples to target.

A study gives a definition and a function that runs one trial; the rest is here, in lab/journal.py and intervals.py.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from lab.journal import Journal, Record
from lab.study.definition import Arm, Definition, Values
from lab.study.intervals import (
    RATIOS,
    SAMPLES,
    SECONDS,
    Comparison,
    Row,
    Rows,
    compare,
    geometric_mean,
    half_interval,
    holm,
    samples_of,
    verdict,
)
from lab.study.search import search

TUNING_SEED = 1000
"""The first seed of tuning's runs; comparisons count from 1."""
_MISSED = 1e12  # samples: more than any run that reaches the target
_EDGE = 0.05  # of a range's width, on its logarithmic scale


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
    seconds: float
    """Time of its steps until then, without evaluations."""


RunTrial = Callable[[Arm, Values, int, float], Outcome]
"""Runs an arm with values and a seed until the target, its end, or this many samples."""


class Study:
    """The trials of a study in one folder."""

    def __init__(self, definition: Definition, folder: Path, run_trial: RunTrial, progress: Progress) -> None:
        """Open the journal; raises ConfigError if the folder holds another study."""
        self.definition, self.arms = definition, definition.all_arms()
        self.journal = Journal(folder, definition)
        self.values: dict[str, Values] = {}
        """What tuning chose, by arm."""
        self._run_trial, self._progress = run_trial, progress
        self._named = {arm.name: arm for arm in self.arms}

    def rows(self, seeds: Sequence[int]) -> list[Row]:
        """Tune every arm and run it with these seeds.

        Seed by seed, so that a stopped study has as many of every arm.
        """
        if not self.values:
            self.values = {arm.name: self._tuned(arm) for arm in self.arms}
        return [self._row(arm, self.values[arm.name], seed) for seed in seeds for arm in self.arms]

    def comparisons(self, rows: Rows) -> list[Comparison]:
        """Return every arm against its reference arms, where at least two seeds of both reached the target."""
        pairs = [self._compared(rows, arm, against) for arm in self.arms for against in arm.against]
        return [pair for pair in pairs if pair]

    def record(self, rows: Rows) -> dict[str, Any]:
        """Return what the study found; `origin` is what ran its last trial, `origins` all."""
        origins = self.journal.origins
        own, equal = self.comparisons(rows), self._at_equal_values(rows)
        p_values = holm([pair["p"] for pair in (*own, *equal)])
        compared = [
            {**pair, "holm_p": p_value, "verdict": verdict(pair, p_value)}
            for pair, p_value in zip((*own, *equal), p_values, strict=True)
        ]
        return {
            "definition": self.definition.model_dump(mode="json"),
            "origin": origins[-1],
            "origins": origins,
            "comparisons": compared[: len(own)],
            "at_equal_values": compared[len(own) :],
            "pooled": self._pooled(compared[: len(own)]) if self.definition.cells else [],
            "arms": [self._summary(arm, rows) for arm in self.arms],
            "tuned": [
                {"arm": arm.name, **self.values[arm.name], "at_edge": self._at_edge(arm)}
                for arm in self.arms
                if arm.space
            ],
            "rows": rows,
        }

    def _row(self, arm: Arm, values: Values, seed: int) -> Row:
        record = self._trial("comparison", arm, values, seed)
        reached = record["samples"] is not None
        return {
            "arm": arm.name,
            **arm.cell,
            **arm.settings,
            "seed": seed,
            SAMPLES: record["samples"],
            SECONDS: record["seconds"] if reached else None,
            "reached": reached,
            **{name: record[name] for name in ("accuracy", "clipped", "clipped_steps")},
        }

    def _tuned(self, arm: Arm) -> Values:
        """Spend the arm's budget and return its best values."""
        tuning, best = self.definition.tuning, math.inf
        if tuning is None or not arm.space:
            return {}

        def score(values: Values) -> float:
            nonlocal best
            found = []
            for seed in range(TUNING_SEED, TUNING_SEED + tuning.seeds):
                record = self._trial("tuning", arm, values, seed, tuning.patience * best)
                if record["samples"] is None:
                    return _MISSED * (2 - record["accuracy"])  # the less accurate the more
                found.append(max(record["samples"], values.get(tuning.at_least or "", 0.0)))
            best = min(best, statistics.mean(found))
            return statistics.mean(found)

        return search(arm.space, tuning.trials, derive(1, str(arm.cell)) % 2**31, score)

    def _at_edge(self, arm: Arm) -> list[str]:
        """Return the values that lie at the edge of their range: a wider one may have better values."""
        places = {name: bounds.place(self.values[arm.name][name]) for name, bounds in arm.space.items()}
        return [name for name, place in places.items() if not _EDGE <= place <= 1 - _EDGE]

    def _at_equal_values(self, rows: Rows) -> list[Comparison]:
        """Run both arms of each comparison with the values of either and the seeds of `rows`, and compare."""
        seeds, found = dict.fromkeys(row["seed"] for row in rows), []
        for arm in self.arms if self.definition.equal_values else ():
            for against, values_of in ((name, own) for name in arm.against for own in (arm.name, name)):
                own_rows = [
                    self._row(self._named[name], self.values[values_of], seed)
                    for name in (arm.name, against)
                    for seed in seeds
                ]
                if pair := self._compared(own_rows, arm, against):
                    found.append({"values_of": values_of, **pair})
        return found

    def _compared(self, rows: Rows, arm: Arm, against: str) -> Comparison | None:
        samples, seconds = (compare(rows, arm.name, against, measure) for measure in (SAMPLES, SECONDS))
        if samples is None or seconds is None:
            return None
        return {
            "kind": arm.kind,
            **arm.cell,
            **arm.settings,
            **samples,
            **{f"seconds_{ratio}": seconds[ratio] for ratio in RATIOS},
        }

    def _pooled(self, compared: Sequence[Comparison]) -> list[dict[str, Any]]:
        """Return means of ratios over all cells and over those of each level; each cell was tuned separately."""
        by_arms = {(pair["difference"]["arm"], pair["difference"]["against"]): pair for pair in compared}
        groups = defaultdict[tuple[str, str, str], list[Comparison | None]](list)
        for arm in self.arms:
            for against in arm.against:
                for cells in ("all", *map(" ".join, arm.cell.items())):
                    groups[arm.kind, self._named[against].kind, cells].append(by_arms.get((arm.name, against)))
        return [_mean_over_cells(*names, group) for names, group in groups.items()]

    def _summary(self, arm: Arm, rows: Rows) -> dict[str, Any]:
        own = [row for row in rows if row["arm"] == arm.name]
        samples, seconds = (list(samples_of(rows, arm.name, measure).values()) for measure in (SAMPLES, SECONDS))
        return {
            "arm": arm.name,
            **arm.cell,
            "values": self.values[arm.name],
            "seeds": len(own),
            "reached": len(samples),
            SAMPLES: statistics.mean(samples) if samples else None,
            "half_width": half_interval(samples),
            SECONDS: statistics.mean(seconds) if seconds else None,
            "clipped": statistics.mean(row["clipped"] for row in own),
        }

    def _trial(self, kind: str, arm: Arm, values: Values, seed: int, most: float = math.inf) -> Record:
        def run() -> dict[str, Any]:
            outcome = self._run_trial(arm, values, seed, most)
            how = "missed or stopped" if outcome.samples is None else f"{outcome.samples:,.0f} samples"
            self._progress.message(f"{kind} {arm.name}, seed {seed}: {how}")
            return asdict(outcome)

        return self.journal.trial({"kind": kind, "arm": arm.name, **values, "seed": seed}, run)


def _mean_over_cells(arm: str, against: str, cells: str, group: Sequence[Comparison | None]) -> dict[str, Any]:
    """Return the geometric mean over cells, with None for those in which an arm missed the target."""
    found = [pair for pair in group if pair]
    samples, low, high = geometric_mean([pair["ratio"] for pair in found])
    seconds, seconds_low, seconds_high = geometric_mean([pair["seconds_ratio"] for pair in found])
    verdict = "no difference shown"
    if len(found) < len(group) or any(pair["missed"] for pair in found):
        verdict = "not decided: runs missed the target"
    elif low is not None and low > 1:
        verdict = "more samples"
    elif high is not None and high < 1:
        verdict = "fewer samples"
    return {
        "arm": arm,
        "against": against,
        "cells": cells,
        "counted": len(found),
        "total": len(group),
        "samples": samples,
        "low": low,
        "high": high,
        "seconds": seconds,
        "seconds_low": seconds_low,
        "seconds_high": seconds_high,
        "verdict": verdict,
    }
