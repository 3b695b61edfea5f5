"""`lab train`: time ours and Hugging Face's Trainer to the target, on the same shards and settings, in turns.

Every run is a separate process group. Our time is from run_start to run_stop, the Trainer's from the start of training
to the evaluation that reached the target: both exclude imports, model and data set-up.
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
from lab.bench.whole_run import Course, Trained, read_run, steps_only

OURS = "bertbench"


class Contest(NamedTuple):
    """The training that all programs do."""

    name_or_path: str
    overrides: tuple[str, ...]
    steps: int | None
    """Optimizer steps without an evaluation; None: to the target."""
    rival_overrides: tuple[str, ...] = ()
    """Settings for the rivals only, because their best ones may differ from ours."""


@dataclass(frozen=True)
class Result:
    """Medians of one program over all seeds."""

    name: str
    seconds_to_target: float | None
    """None if a run missed the target, or had none."""
    samples_to_target: float | None
    samples_per_s: float
    """Rate over whole runs, with evaluations."""
    reached: bool
    """Whether every run reached the target."""


def measure(
    contest: Contest, system: System, seeds: Sequence[int], with_rivals: bool, progress: Progress
) -> tuple[list[Result], dict[str, list[Course]]]:
    """Train every program once per seed, in turns, in reverse order every other round.

    Return the medians, and each program's evaluations in every run. Raises RunError if a program fails.
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
        own = () if contest.steps is None else steps_only(contest.steps, system.global_batch_size)
        for override in (*contest.overrides, *own):
            command += ["--set", override]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise RunError(f"{OURS}: its run ended with code {done.returncode}: {_last_line(done.stderr)}")
        return read_run(log, to_target=contest.steps is None)


def _rivals() -> dict[str, Callable[[Contest, System, int], Trained]]:
    """Return the Trainer's set-ups by name: number of processes, and grouping of samples."""
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
            [sys.executable, "-m", "lab.bench.rival_train", request], env={**os.environ, **environment},
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
