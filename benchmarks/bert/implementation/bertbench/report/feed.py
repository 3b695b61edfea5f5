"""From a run's files to a tracker: what every step and every evaluation measured, in order, with the time it was at."""

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from bertbench.report.run_reading import FollowedRun, Row
from bertbench.report.run_state import phases
from bertbench.run_files.samples import sample_counts, samples_per_s, samples_to_end


class Point(NamedTuple):
    """What was measured at a step, by name; when, in seconds since 1970."""

    step: int
    time_s: float
    values: dict[str, float]


class Tracker(Protocol):
    """Where a run is recorded; it begins with what the run ran with, and holds nothing else of that run."""

    def record(self, points: Sequence[Point]) -> None:
        """Add points, in the order of their steps."""

    def close(self, status: str, summary: Mapping[str, float]) -> None:
        """End the record with how the run ended, and its final numbers."""


class Feed:
    """Passes on what a run's files have that the tracker has not."""

    def __init__(self, run: FollowedRun, tracker: Tracker) -> None:
        self._run, self._tracker = run, tracker
        self._evaluations = self._passed = 0
        self._block, self._in_block_ms = -1.0, 0.0
        self._unsent: list[Point] = []

    def forward(self, steps: Sequence[int], until: int = 0) -> None:
        """Pass on these steps, in their order, and each evaluation with the first steps, or `until`, that reach it.

        Raises errors of the tracker's own kind; what it refused is passed on with the next call.
        """
        self._passed = max(self._passed, until, *steps)
        points = {step: self._point(step, self._run.rows[step]) for step in steps if step in self._run.rows}
        batch = self._run.batch
        for evaluation in sample_counts(self._run.facts).evaluations[self._evaluations :]:
            if evaluation.samples is None or not batch:
                self._evaluations += 1
                continue
            step = round(evaluation.samples / batch)
            if step > self._passed:
                break
            self._evaluations += 1
            values = {"eval/accuracy": evaluation.accuracy}
            so_far = phases(self._run, evaluation.time_ms, evaluation.samples)
            values |= {f"phase/{name.replace(' ', '_')}_s": seconds for name, seconds in so_far.items()}
            known = points.get(step, Point(step, evaluation.time_ms / 1e3, {}))
            points[step] = known._replace(values=known.values | values)
        self._unsent += [points[step] for step in sorted(points)]
        if self._unsent:
            self._tracker.record(self._unsent)
            self._unsent = []

    def close(self, status: str) -> None:
        """End the record, with the evaluations whose steps no file has."""
        facts = self._run.facts
        self.forward([], until=sys.maxsize)
        summary = {
            "time_to_train_s": facts.time_to_train_s,
            "best_accuracy": facts.best_accuracy,
            "samples_to_train": samples_to_end(facts),
            "samples_per_s": samples_per_s(facts),
        }
        self._tracker.close(status, {name: value for name, value in summary.items() if value is not None})

    def _point(self, step: int, row: Row) -> Point:
        """Return a step's values, and when it ended: the start of its block, and the steps of the block so far."""
        values = {f"train/{key}": value for key, value in row.items() if key != "step"}
        if row.get("step_ms") and self._run.batch:
            values["train/samples_per_s"] = 1e3 * self._run.batch / row["step_ms"]
        begun = 0.0
        for event in self._run.facts.all("block_start"):
            first = event.metadata.get("first_epoch_num")
            if isinstance(first, int) and first < row.get("samples", 0.0):
                begun = event.time_ms
        if begun != self._block:
            self._block, self._in_block_ms = begun, 0.0
        self._in_block_ms += row.get("step_ms", 0.0)
        return Point(step, (begun + self._in_block_ms) / 1e3, values)
