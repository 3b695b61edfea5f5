"""`lab time-to-target`: compare bertbench's time to the target with that of Hugging Face's Trainer, on the same shards.

The Trainer is tuned first, with seeds that no row uses: its set-ups are compared by samples/s, values of its settings
by samples to the target. Then every row runs once for each seed; the runs are interleaved, and each has its own process
group. Our time is from run_start to run_stop. The Trainer's time starts at the end of its first step, which compiles,
and stops at the evaluation that reaches the target. Both exclude imports and the set-up of model and data. The journal
keeps every finished run, so that an interrupted comparison can be resumed.
"""

import argparse
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bertbench.cli.arguments import SYSTEM_HELP, add_system_arguments
from bertbench.common.children import dying_with_us
from bertbench.common.errors import ConfigError, RunError
from bertbench.common.progress import Progress
from bertbench.common.section import Section
from bertbench.config import load_system
from bertbench.config.given import check_given
from bertbench.distributed.cores import available_cores
from bertbench.launch.run_options import TRAIN
from bertbench.loading.inputs import open_data
from bertbench.machine.processor import processor
from lab.bench.harness import BenchResult, alternate, command, option
from lab.bench.train_result import OURS, lines_of, result
from lab.bench.whole_run import SetUp, Trained, last_line, steps_only, train_here
from lab.journal import Journal
from lab.spawn import environments_of

_TUNED_ON = (1001, 1002, 1003)  # seeds that no row uses; values that were best for a single one missed other targets
SCREENED_STEPS = 100
_PLAIN_ADAM = ("optimizer.name=adam", "optimizer.ema_decay=0")
_OURS_PLAIN = f"{OURS}, AdamW, not averaged"

Settings = tuple[str, ...]
"""Settings that override the system file."""


class Program(NamedTuple):
    """The program that trains: bertbench, or the Trainer with a set-up."""

    name: str
    overrides: Settings
    setup: SetUp | None = None
    steps: int | None = None
    """The number of steps; None to train to the target."""

    @property
    def alike(self) -> str:
        """Return the name of bertbench's row with the same optimizer."""
        if self.setup is None:
            return self.name
        return OURS if self.setup.ours else _OURS_PLAIN


class CommonSettings(Section):
    """The settings that a journal's runs share; other settings need another folder."""

    system: dict[str, Any]
    steps: int | None


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Train every program once for each seed; the record keeps all evaluations. Raises RunError if a run fails."""
    if not all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")):
        raise ConfigError(
            "transformers and accelerate, whose Trainer is the baseline, aren't installed; `make setup` installs them"
        )
    system = load_system(arguments.system, arguments.overrides)
    check_given(system, TRAIN)
    for values in combinations(arguments.baseline_sweeps):
        load_system(arguments.system, (*arguments.overrides, *values))
    open_data(system)  # report bad data before minutes of training
    definition = CommonSettings(system=system.model_dump(mode="json"), steps=arguments.steps)
    with tempfile.TemporaryDirectory() as folder:
        comparison = _Comparison(arguments, Journal(arguments.out or Path(folder), definition), progress)
        programs = comparison.programs()
        runs = alternate({program.name: partial(comparison.run, program) for program in programs}, arguments.seeds)
    results = []
    courses = {}
    for program in programs:
        its_runs = runs[program.name]
        results.append(result(program.name, its_runs, runs[OURS], runs.get(program.alike, [])))
        courses[program.name] = [run.course for run in its_runs]
    lines = [f"{system.name} on {processor()}; means of {arguments.seeds} seeds each", *lines_of(results)]
    origins = comparison.journal.origins
    if len(origins) > 1:
        lines.append(f"runs of {len(origins)} commits or machines, which the record lists")
    settings = {program.name: program.overrides for program in programs}
    tuning = [record for record in comparison.journal.records if record["kind"] != "comparison"]
    return BenchResult(results, lines, {"settings": settings, "courses": courses, "tuning": tuning, "origins": origins})


class _Comparison:
    """The runs of one command; finished runs come from its journal."""

    def __init__(self, arguments: argparse.Namespace, journal: Journal, progress: Progress) -> None:
        self._arguments = arguments
        self.journal = journal
        self._progress = progress

    def programs(self) -> list[Program]:
        """Return the programs whose runs alternate, after tuning the Trainer."""
        steps = self._arguments.steps
        overrides = tuple(self._arguments.overrides)
        ours = Program(OURS, overrides, steps=steps)
        screened = {setup: Program(setup.name, overrides, setup, steps or SCREENED_STEPS) for setup in set_ups()}
        if steps is not None:
            return [ours, *screened.values()]
        rates = {setup: self._trial("set-up", program, _TUNED_ON[0]).rate for setup, program in screened.items()}
        strongest = max(rates, key=rates.__getitem__)
        tuned = (*overrides, *self._swept(strongest, overrides))
        equipped = strongest._replace(ours=True)
        return [
            ours,
            Program(_OURS_PLAIN, (*tuned, *_PLAIN_ADAM)),
            Program(strongest.name, tuned, strongest),
            Program(equipped.name, overrides, equipped),
        ]

    def _swept(self, setup: SetUp, overrides: Settings) -> Settings:
        """Return the values with which the Trainer needs the fewest samples, over the seeds for tuning.

        Raises RunError if no values reach the target with every seed.
        """
        samples_of: dict[Settings, int] = {}
        for values in combinations(self._arguments.baseline_sweeps):
            program = Program(setup.name, (*overrides, *values), setup)
            trials = [self._trial("sweep", program, seed) for seed in _TUNED_ON]
            if all(trained.reached for trained in trials):
                samples_of[values] = sum(trained.samples for trained in trials)
        if not samples_of:
            raise RunError("the Trainer reached the target with every seed for no values; try others: --baseline-sweep")
        return min(samples_of, key=samples_of.__getitem__)

    def run(self, program: Program, number: int) -> Trained:
        """Return a row's run with seed `number` + 1."""
        return self._trial("comparison", program, number + 1)

    def _trial(self, kind: str, program: Program, seed: int) -> Trained:
        """Return a program's run with a seed, from the journal if it has finished before."""
        key = {"kind": kind, "program": program.name, "settings": " ".join(program.overrides), "seed": seed}
        record = self.journal.trial(key, lambda: _trained(self._arguments.system, program, seed)._asdict())
        trained = Trained(*(record[field] for field in Trained._fields))
        rate = f"{trained.rate:,.0f} samples/s"
        ran = f"seed {seed}: {program.name}: {trained.seconds:,.1f} s, {trained.samples:,} samples, {rate}"
        self._progress.message(ran)
        return trained


def set_ups() -> list[SetUp]:
    """Return the Trainer's set-ups: one process or one for each core, each number format, and at most one extra."""
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    formats = ("fp32", "bf16") if has_bf16 else ("fp32",)
    extras = ("", "torch_compile", "a worker")
    return [SetUp(*each) for each in itertools.product(dict.fromkeys((available_cores(), 1)), formats, extras)]


def combinations(sweeps: Sequence[str]) -> list[Settings]:
    """Return the settings of each trial, given `NAME=VALUE,VALUE...`; one if there are none. Raises ConfigError."""
    choices = []
    for sweep in sweeps:
        name, equals, values = sweep.partition("=")
        if not equals or not values:
            raise ConfigError(f"--baseline-sweep {sweep}: expected NAME=VALUE,VALUE")
        choices.append([f"{name}={value}" for value in values.split(",")])
    return [*itertools.product(*choices)]


def _trained(system: str, program: Program, seed: int) -> Trained:
    if program.setup is None:
        return train_ours(system, program.steps, program.overrides, seed)
    return train_baseline(system, program.steps, program.setup, program.overrides, seed)


def train_ours(system: str, steps: int | None, overrides: Settings, seed: int) -> Trained:
    """Train a system by bertbench, to its target or for a number of steps."""
    if steps is not None:
        overrides = (*overrides, *steps_only(steps, load_system(system, overrides).global_batch_size))
    with tempfile.TemporaryDirectory() as folder:
        return train_here(system, overrides, seed, Path(folder) / "run_0.txt", to_target=steps is None)


def train_baseline(system: str, steps: int | None, setup: SetUp, overrides: Settings, seed: int) -> Trained:
    """Train a system by Hugging Face's Trainer, to its target or for a number of steps. Raises RunError if it fails."""
    request = json.dumps([system, overrides, seed, steps, setup])
    environments: list[Mapping[str, str]] = [*environments_of(setup.ranks)] if setup.ranks > 1 else [{}]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "lab.bench.trainer_baseline", request], env={**os.environ, **environment},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=dying_with_us(),
        )
        for environment in environments
    ]  # fmt: skip
    answers = [process.communicate() for process in processes]
    for process, (_, stderr) in zip(processes, answers, strict=True):
        if process.returncode:
            raise RunError(f"{setup.name}: its run ended with code {process.returncode}: {last_line(stderr)}")
    return Trained(*json.loads(answers[0][0].splitlines()[-1]))


add_arguments, run = command(
    measure, ("--seeds", 1, "runs of each program"), ("--steps", None, "measure only the throughput, over N steps"),
    more=[
        option("system", nargs="?", default="cpu_demo", metavar="SYSTEM", help=f"{SYSTEM_HELP} (default cpu_demo)"),
        option(
            "--baseline-sweep", action="append", default=[], dest="baseline_sweeps", metavar="NAME=VALUE,VALUE",
            help="set a value of AdamW, for the Trainer and for bertbench; of several values, keep the one that needs "
            f"the fewest samples to the target with seeds {_TUNED_ON[0]} to {_TUNED_ON[-1]}; repeat the option to try "
            "all combinations",
        ),
        option(
            "--out", type=Path, metavar="FOLDER",
            help="folder of finished runs, from which an interrupted comparison resumes (default: none are kept)",
        ),
        partial(add_system_arguments, reads=TRAIN),
    ],
)  # fmt: skip
