"""`bench train`: time to the target, ours and Hugging Face's Trainer's, on the same shards and settings, in turns.

Every run is a process group of its own. Clocks: ours from run_start to run_stop; the Trainer's from the start of its
training to the evaluation that reached the target, so imports, model and data are off both.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.config import System
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.spawn import environments_of
from compliance.log import read_events
from compliance.run import RunFacts

OURS = "bertbench"


class Contest(NamedTuple):
    """What all programs train."""

    name_or_path: str
    overrides: tuple[str, ...]
    steps: int | None
    """Optimizer steps without an evaluation; None: to the target."""
    rival_overrides: tuple[str, ...] = ()
    """For the rivals alone: what is best for them may not be what is best for ours."""


Course = list[tuple[float, float]]
"""Seconds since training began, and the accuracy then, at each evaluation."""


class Trained(NamedTuple):
    """One run of one program."""

    seconds: float
    samples: int
    reached: bool
    course: Course


@dataclass(frozen=True)
class Result:
    """One program over all seeds: medians."""

    name: str
    seconds_to_target: float | None
    """None if a run missed the target, or none was to be reached."""
    samples_to_target: float | None
    samples_per_s: float
    """Of whole runs, evaluations included."""
    reached: bool
    """Whether every run reached the target."""


def measure(
    contest: Contest, system: System, seeds: Sequence[int], with_rivals: bool, progress: Progress
) -> tuple[list[Result], dict[str, list[Course]]]:
    """Train every program once a seed, in turns, every other round in reverse; raises RunError if one fails.

    Return the medians, and each program's course in every run.
    """
    programs = {OURS: _ours, **(_rivals() if with_rivals else {})}
    runs: dict[str, list[Trained]] = {name: [] for name in programs}
    for number, seed in enumerate(seeds):
        for name in list(programs)[:: -1 if number % 2 else 1]:
            trained = programs[name](contest, system, seed)
            runs[name].append(trained)
            progress.message(
                f"seed {seed}: {name}: {trained.seconds:,.1f} s, {trained.samples:,} samples, "
                f"{trained.samples / trained.seconds:,.0f} samples/s"
            )
    courses = {name: [trained.course for trained in done] for name, done in runs.items()}
    return [_result(name, done) for name, done in runs.items()], courses


def _result(name: str, runs: Sequence[Trained]) -> Result:
    reached = all(run.reached for run in runs)
    return Result(
        name,
        round(statistics.median(run.seconds for run in runs), 3) if reached else None,
        statistics.median(run.samples for run in runs) if reached else None,
        round(statistics.median(run.samples / run.seconds for run in runs), 1),
        reached,
    )


def _ours(contest: Contest, system: System, seed: int) -> Trained:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run_0.txt"
        command = [
            sys.executable,
            "-m",
            "bertbench",
            "train",
            contest.name_or_path,
            "--seed",
            str(seed),
            "--result",
            str(log),
        ]
        limit = contest.steps and contest.steps * system.global_batch_size
        own = () if limit is None else (
            "evaluation.target=0.999999", f"evaluation.max_samples={limit}", f"evaluation.interval_samples={limit}",
        )  # fmt: skip
        for override in (*contest.overrides, *own):
            command += ["--set", override]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise RunError(f"{OURS}: its run ended with code {done.returncode}: {_last_line(done.stderr)}")
        facts = RunFacts(read_events(log))
    assert facts.time_to_train_s is not None, "a run that ends in order has a start and a stop"
    seconds = facts.time_to_train_s - (facts.evaluation_s if contest.steps else 0.0)
    started = next(event.time_ms for event in facts.events() if event.key == "run_start")
    course = [((measured.time_ms - started) / 1e3, measured.accuracy) for measured in facts.evaluations]
    return Trained(seconds, int(facts.samples or 0), facts.status == "success", course)


def _rivals() -> dict[str, Callable[[Contest, System, int], Trained]]:
    """Return the Trainer's set-ups: its processes, and how it groups samples."""
    cores = available_cores()
    setups = {"one process": (1, False), "one process, group_by_length": (1, True)}
    if cores > 1:
        setups |= {f"{cores} processes": (cores, False), f"{cores} processes, group_by_length": (cores, True)}

    def rival(ranks: int, grouped: bool) -> Callable[[Contest, System, int], Trained]:
        return lambda contest, system, seed: _rival(contest, seed, ranks, grouped)

    return {f"transformers Trainer, {name}": rival(*setup) for name, setup in setups.items()}


def _rival(contest: Contest, seed: int, ranks: int, grouped: bool) -> Trained:
    overrides = (*contest.overrides, *contest.rival_overrides)
    request = json.dumps([contest.name_or_path, overrides, seed, contest.steps, grouped])
    environments: list[Mapping[str, str]] = [*environments_of(ranks)] if ranks > 1 else [{}]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bertbench.bench.rival_train", request], env={**os.environ, **environment},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for environment in environments
    ]  # fmt: skip
    answers = [process.communicate() for process in processes]
    for process, (_, stderr) in zip(processes, answers, strict=True):
        if process.returncode:
            raise RunError(f"transformers Trainer: its run ended with code {process.returncode}: {_last_line(stderr)}")
    return Trained(*json.loads(answers[0][0].splitlines()[-1]))


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2] or "it printed nothing"
