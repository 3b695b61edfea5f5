"""Send a run's files to a tracker: the measurements of every step and evaluation, in order, with their times."""

import sys
from collections.abc import Sequence

from bertbench.report.followed_run import FollowedRun, Row
from bertbench.report.run_state import phases
from bertbench.report.trackers import TrackedStep, Tracker
from bertbench.run_files.flop_rates import flops_of
from bertbench.run_files.sample_counts import sample_counts, samples_per_s, samples_to_end
from compliance.read.run import LoggedEvaluation


class Feed:
    """Sends the tracker what is in a run's files and hasn't been sent yet."""

    def __init__(self, run: FollowedRun, tracker: Tracker) -> None:
        self._run = run
        self._tracker = tracker
        self._last_step = 0
        """The last step whose evaluation may be sent."""
        self._evaluations = 0
        """How many of the log's evaluations have been sent."""
        self._block_began_ms = -1.0
        self._in_block_ms = 0.0
        """The time of those steps in this block that have been sent."""
        self._unsent: list[TrackedStep] = []

    def forward(self, steps: Sequence[int], until: int = 0) -> None:
        """Send these steps in order, and each evaluation together with the first steps, or `until`, that reach it.

        Raises the tracker's own errors; what the tracker refused is sent again by the next call.
        """
        self._last_step = max(self._last_step, until, *steps)
        known = {step: self._tracked(step, self._run.rows[step]) for step in steps if step in self._run.rows}
        for step, evaluation in self._due_evaluations():
            tracked = known.get(step, TrackedStep(step, evaluation.time_ms / 1e3, {}))
            known[step] = tracked._replace(values=tracked.values | self._evaluation_values(evaluation))
        self._unsent += [known[step] for step in sorted(known)]
        if self._unsent:
            self._tracker.record(self._unsent)
            self._unsent = []

    def close(self, status: str) -> None:
        """End the record; first send evaluations whose steps aren't in any file."""
        self.forward([], until=sys.maxsize)
        facts = self._run.facts
        flops = flops_of(self._run.log)
        summary = {
            "time_to_train_s": facts.time_to_train_s,
            "best_accuracy": facts.best_accuracy,
            "samples_to_train": samples_to_end(facts),
            "samples_per_s": samples_per_s(facts),
            "tflops_per_device": flops.tflops_per_device,
            "mfu": flops.mfu,
        }
        self._tracker.close(status, {name: value for name, value in summary.items() if value is not None})

    def _due_evaluations(self) -> list[tuple[int, LoggedEvaluation]]:
        """Return the evaluations up to the last step that haven't been sent yet, with their steps."""
        batch = self._run.batch
        due = []
        for evaluation in sample_counts(self._run.facts).evaluations[self._evaluations :]:
            if evaluation.samples is not None and batch:
                step = round(evaluation.samples / batch)
                if step > self._last_step:
                    break
                due.append((step, evaluation))
            self._evaluations += 1
        return due

    def _evaluation_values(self, evaluation: LoggedEvaluation) -> dict[str, float]:
        """Return an evaluation's accuracy, and the seconds of each phase so far."""
        assert evaluation.samples is not None, "only evaluations at a known step are due"
        values = {"eval/accuracy": evaluation.accuracy}
        for phase, seconds in phases(self._run, evaluation.time_ms, evaluation.samples).items():
            values[f"phase/{phase.replace(' ', '_')}_s"] = seconds
        return values

    def _tracked(self, step: int, row: Row) -> TrackedStep:
        """Return a step's values and the time of its end: the start of its block plus the block's steps so far."""
        values = {f"train/{key}": value for key, value in row.items() if key != "step"}
        step_ms = row.get("step_ms", 0.0)
        if step_ms and self._run.batch:
            values["train/samples_per_s"] = 1e3 * self._run.batch / step_ms
        block_began_ms = self._block_start_ms(row.get("samples", 0.0))
        if block_began_ms != self._block_began_ms:
            self._block_began_ms = block_began_ms
            self._in_block_ms = 0.0
        self._in_block_ms += step_ms
        return TrackedStep(step, (block_began_ms + self._in_block_ms) / 1e3, values)

    def _block_start_ms(self, samples: float) -> float:
        """Return when the block began in which a number of samples was reached; 0 before the first block."""
        began_ms = 0.0
        for event in self._run.facts.all("block_start"):
            first = event.metadata.get("first_epoch_num")
            if isinstance(first, int) and first < samples:
                began_ms = event.time_ms
        return began_ms
