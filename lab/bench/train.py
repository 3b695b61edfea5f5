"""`lab train`: time ours and Hugging Face's Trainer to the target, on the same shards and settings, in turns.

Every run is a separate process group. Our time is from run_start to run_stop, the Trainer's from the start of training
to the evaluation that reached the target: both exclude imports, model and data set-up.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bertbench.commands import SYSTEM_HELP, add_system_arguments
from bertbench.common.errors import RunError
from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.spawn import environments_of
from bertbench.machine.processor import processor
from bertbench.training.inputs import open_data
from lab.bench.harness import Found, command, in_turns, table
from lab.bench.whole_run import Trained, read_run, steps_only

OURS = "bertbench"
_COLUMNS = {
    "": "{0.name}", "seconds": "{0.seconds_to_target:,.1f}", "samples": "{0.samples_to_target:,.0f}",
    "samples/s": "{0.samples_per_s:,.0f}",
}  # fmt: skip


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


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Train every program once per seed; the record keeps each run's evaluations. Raises RunError if one fails."""
    system = load_system(arguments.system, arguments.overrides)
    load_system(arguments.system, (*arguments.overrides, *arguments.rival_overrides))
    open_data(system)  # report bad data before minutes of training
    programs: dict[str, Callable[[int], Trained]] = {OURS: partial(_ours, arguments, system)}
    if all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")):
        programs |= _rivals(arguments)
    else:
        progress.message(
            "transformers and accelerate are not installed: measuring bertbench only; `make setup` installs them"
        )

    def trained(name: str, number: int) -> Trained:
        run = programs[name](number + 1)
        rate = f"{run.samples / run.seconds:,.0f} samples/s"
        progress.message(f"seed {number + 1}: {name}: {run.seconds:,.1f} s, {run.samples:,} samples, {rate}")
        return run

    runs = in_turns({name: partial(trained, name) for name in programs}, arguments.seeds)
    results = [_result(name, done) for name, done in runs.items()]
    head = f"{system.name} on {processor()}; medians"
    courses = {name: [run.course for run in done] for name, done in runs.items()}
    return Found(results, [head, *table(results, _COLUMNS), *_headlines(*results)], {"courses": courses})


def _result(name: str, runs: Sequence[Trained]) -> Result:
    reached = all(run.reached for run in runs)
    return Result(
        name,
        round(statistics.median(run.seconds for run in runs), 3) if reached else None,
        statistics.median(run.samples for run in runs) if reached else None,
        round(statistics.median(run.samples / run.seconds for run in runs), 1),
        reached,
    )


def _headlines(ours: Result, *rivals: Result) -> list[str]:
    lines = []
    if rivals:
        fastest = max(rivals, key=lambda result: result.samples_per_s)
        lines.append(f"{ours.samples_per_s / fastest.samples_per_s:.2f} times the samples/s of {fastest.name}")
    timed = {result.seconds_to_target: result.name for result in rivals if result.seconds_to_target is not None}
    if ours.seconds_to_target and timed:
        best = min(timed)
        ratio = f"{best / ours.seconds_to_target:.2f} times as fast to the target as {timed[best]}"
        lines.append(f"{ratio}, the fastest Trainer that reached it")
    return lines


def _ours(arguments: argparse.Namespace, system: System, seed: int) -> Trained:
    own = () if arguments.steps is None else steps_only(arguments.steps, system.global_batch_size)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run_0.txt"
        words = ["-m", "bertbench", "train", arguments.system, "--seed", str(seed), "--result", str(log)]
        words += [word for override in (*arguments.overrides, *own) for word in ("--set", override)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise RunError(f"{OURS}: its run ended with code {done.returncode}: {_last_line(done.stderr)}")
        return read_run(log, to_target=arguments.steps is None)


def _rivals(arguments: argparse.Namespace) -> dict[str, Callable[[int], Trained]]:
    """Return the Trainer's set-ups by name: on one process and on every core, without and with grouping."""
    cores = available_cores()
    return {
        f"transformers Trainer, {name}{suffix}": partial(_rival, arguments, ranks, grouped)
        for ranks, name in {cores: f"{cores} processes", 1: "one process"}.items()
        for suffix, grouped in (("", False), (", group_by_length", True))
    }


def _rival(arguments: argparse.Namespace, ranks: int, grouped: bool, seed: int) -> Trained:
    overrides = (*arguments.overrides, *arguments.rival_overrides)
    request = json.dumps([arguments.system, overrides, seed, arguments.steps, grouped])
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


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "system", nargs="?", default="cpu_demo", metavar="SYSTEM", help=f"{SYSTEM_HELP} (default cpu_demo)"
    )
    parser.add_argument(
        "--rival-set", action="append", default=[], dest="rival_overrides", metavar="NAME=VALUE",
        help="override a setting for the Trainer only, such as the learning rate of its AdamW; may be repeated",
    )  # fmt: skip
    add_system_arguments(parser)


add_arguments, run = command(
    measure, ("--seeds", 1, "runs of each program"), ("--steps", None, "measure only throughput, over N steps"),
    more=_options,
)  # fmt: skip
