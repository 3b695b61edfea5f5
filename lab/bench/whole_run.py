"""Do a whole run for a benchmark, to the target or for a fixed number of steps, and read its times."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bertbench.common.children import dying_with_us
from bertbench.common.errors import RunError
from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.runs.files import ResultFiles
from bertbench.runs.log_spans import evaluation_s
from bertbench.runs.run_progress import RunProgress
from bertbench.training.build import TrainOptions
from bertbench.training.technique import Technique
from bertbench.training.train import train
from compliance.read.log import read_events
from compliance.read.run import RunFacts

ALIKE = (
    "precision.compute=fp32",
    "compute.products=torch",
    "optimizer.ema_decay=0",
    "checkpoint.final_weights=false",
)
"""Settings that all compared runs share. A run that measured its number format could choose a different one, and need a
different number of samples. Local updates are evaluated with the ranks' mean, so no run evaluates an average over
steps.
"""
Course = list[tuple[float, float]]
"""For each evaluation, the seconds since training began, and the accuracy."""


class SetUp(NamedTuple):
    """How the Trainer is run."""

    ranks: int = 1
    precision: str = "fp32"
    extra: str = ""
    """`torch_compile`, `a worker` (which loads data in its own process), or nothing."""
    ours: bool = False
    """Whether to use our initial weights, and our optimizer built from torch's, instead of transformers' and AdamW."""

    @property
    def name(self) -> str:
        """Return the name of its row."""
        processes = "one process" if self.ranks == 1 else f"{self.ranks} processes"
        words = ["transformers Trainer", processes, self.precision]
        if self.extra:
            words.append(self.extra)
        if self.ours:
            words.append("our Muon and initial weights")
        return ", ".join(words)


class Trained(NamedTuple):
    """One run of a program."""

    seconds: float
    """The time from run_start to run_stop; with a fixed number of steps, without the final evaluation."""
    samples: int
    reached: bool
    course: Course

    @property
    def rate(self) -> float:
        """Return the samples/s over the whole run."""
        return self.samples / self.seconds


def steps_only(steps: int, global_batch_size: int) -> tuple[str, ...]:
    """Return the settings of a run that ends after `steps` steps, with one evaluation at the end."""
    limit = steps * global_batch_size
    return (
        "evaluation.target=0.999999", f"evaluation.max_samples={limit}", f"evaluation.interval_samples={limit}",
    )  # fmt: skip


def train_command(system: str, settings: Iterable[str], seed: int, log: Path) -> list[str]:
    """Return the words that do a whole run on this machine."""
    words = ["-m", "bertbench", "train", system, "--seed", str(seed), "--result", str(log)]
    return [sys.executable, *words, *(word for setting in settings for word in ("--set", setting))]


def train_here(system: str, settings: Iterable[str], seed: int, log: Path, to_target: bool = True) -> Trained:
    """Do a whole run on this machine by `bertbench train`. Raises RunError if it fails."""
    command = train_command(system, settings, seed, log)
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=dying_with_us())
    check_ended(log, seed, done.returncode, done.stderr)
    return read_timed_run(log, to_target)


def check_ended(log: Path, seed: int, code: int, said: str) -> None:
    """Raise RunError unless a run ended at its target or, with code 3, at its limit."""
    if code not in (0, 3):
        raise RunError(f"{log}: the run failed, seed {seed}, with code {code}: {last_line(said)}")


def steps_here(system: str, settings: Iterable[str], seed: int, log: Path) -> list[dict[str, Any]]:
    """Do a run with a fixed number of steps here; return its metrics of each step. Raises RunError if it fails."""
    train_here(system, settings, seed, log, to_target=False)
    lines = ResultFiles(log).metrics.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def last_line(text: str) -> str:
    """Return the last line that a program printed."""
    return text.strip().rpartition("\n")[2] or "it printed nothing"


def train_quietly(world: World, system: System, seed: int, log: Path, technique: Technique) -> None:
    """Do a whole run without showing progress; rank 0 writes the log and its folder. Collective."""
    files = ResultFiles(log) if world.leads else None
    if files is not None:
        files.describe(system, seed, configuration=technique.configuration(system))
    progress = RunProgress(system, enabled=False)
    train(system, world, seed, files, progress, TrainOptions(technique=technique))


def read_timed_run(log: Path, to_target: bool) -> Trained:
    """Read the log of a run that ended normally."""
    facts = RunFacts(read_events(log))
    assert facts.time_to_train_s is not None, "a run that ends normally has a start and a stop"
    seconds = facts.time_to_train_s - (0.0 if to_target else evaluation_s(facts))
    return Trained(seconds, int(facts.samples or 0), facts.status == "success", facts.course)
