"""Read a run's files for a tracker: its parameters, the measurements of its steps, and its final numbers.

The files are read once. Those of a run that is still training hold its steps so far.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.runs.flop_rates import flops_of
from bertbench.runs.json_files import metric_rows, read_json
from bertbench.runs.run_settings import configured, flattened, system_name
from bertbench.runs.sample_counts import sample_counts, samples_per_s, samples_to_end
from compliance.read.log import read_events
from compliance.read.run import RunFacts, as_integer, number

Row = dict[str, float]


class TrackedStep(NamedTuple):
    """The measurements at a step, by name, and their time in seconds since 1970."""

    step: int
    time_s: float
    values: dict[str, float]


@dataclass(frozen=True)
class TrackedRun:
    """A run's log and the facts in it."""

    log: Path
    facts: RunFacts

    @classmethod
    def read(cls, log: Path) -> "TrackedRun":
        """Read a log. Raises CannotJudge if it isn't one."""
        return cls(log, RunFacts(read_events(log)))

    @property
    def system(self) -> str:
        """Return the system's name."""
        return system_name(self.log, self.facts)

    @property
    def name(self) -> str:
        """Return a name that distinguishes the run: system, folder and number, such as cpu_demo/bert/result_0."""
        return f"{self.system}/{self.log.parent.name}/{self.log.stem}"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the run: the system file's settings, and seed, commit, processor and versions."""
        origin = {f"run.{key}": value for key, value in flattened(read_json(self.log, "run.json")).items()}
        return configured(self.log) | origin

    def steps(self) -> list[TrackedStep]:
        """Return the measurements of the steps in order; an evaluation belongs to the step before it."""
        batch = as_integer(self.facts.global_batch_size)
        tracked = self._trained_steps(batch)
        for evaluation in sample_counts(self.facts).evaluations:
            if evaluation.samples is None or not batch:
                continue
            step = round(evaluation.samples / batch)
            known = tracked.get(step, TrackedStep(step, evaluation.time_ms / 1e3, {}))
            tracked[step] = known._replace(values=known.values | {"eval/accuracy": evaluation.accuracy})
        return [tracked[step] for step in sorted(tracked)]

    def final_numbers(self) -> dict[str, float]:
        """Return the numbers that sum up the run, as far as they are known."""
        flops = flops_of(self.log)
        numbers = {
            "time_to_train_s": self.facts.time_to_train_s,
            "best_accuracy": self.facts.best_accuracy,
            "samples_to_train": samples_to_end(self.facts),
            "samples_per_s": samples_per_s(self.facts),
            "tflops_per_device": flops.tflops_per_device,
            "mfu": flops.mfu,
        }
        return {name: value for name, value in numbers.items() if value is not None}

    def _trained_steps(self, batch: int | None) -> dict[int, TrackedStep]:
        """Return the steps in metrics.jsonl; each ended after the start of its block plus the block's steps so far."""
        tracked = {}
        block_began_ms = -1.0
        in_block_ms = 0.0
        for row in map(_numbers, metric_rows(self.log)):
            if "step" not in row:
                continue
            step = int(row["step"])
            step_ms = row.get("step_ms", 0.0)
            values = {f"train/{name}": value for name, value in row.items() if name != "step"}
            if step_ms and batch:
                values["train/samples_per_s"] = 1e3 * batch / step_ms
            began_ms = self._block_start_ms(row.get("samples", 0.0))
            if began_ms != block_began_ms:
                block_began_ms = began_ms
                in_block_ms = 0.0
            in_block_ms += step_ms
            tracked[step] = TrackedStep(step, (block_began_ms + in_block_ms) / 1e3, values)
        return tracked

    def _block_start_ms(self, samples: float) -> float:
        """Return when the block began in which a number of samples was reached; 0 before the first block."""
        began_ms = 0.0
        for event in self.facts.all("block_start"):
            first = event.metadata.get("first_epoch_num")
            if isinstance(first, int) and first < samples:
                began_ms = event.time_ms
        return began_ms


def _numbers(content: dict[str, Any]) -> Row:
    """Return the numbers in a line of metrics.jsonl."""
    row = {}
    for name, value in content.items():
        numeric = number(value)
        if numeric is not None:
            row[name] = numeric
    return row
