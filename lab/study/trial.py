"""Run one trial: train a system with all its ranks as processes of this machine, and watch its evaluations.

Ranks are forked from a server that has torch loaded: a trial takes a few seconds, and importing torch in each process
would double that. Otherwise a trial is an ordinary run: it writes a log, its configuration and metrics.
"""

import json
import math
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from bertbench.common.errors import BertbenchError, RunError
from bertbench.config import System
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.spawn import environments_of
from bertbench.distributed.world import join, lost_contact
from bertbench.launch.local import close_log
from bertbench.results.files import ResultFiles
from bertbench.results.progress import RunProgress
from bertbench.training.train import train
from lab.study.engine import Outcome

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["lab.study.trial", "torch._dynamo"])  # DDP imports the latter


@dataclass(frozen=True)
class Trial:
    """A run to make, and where its log goes."""

    name: str
    system: System
    seed: int
    files: ResultFiles


Watch = Callable[[int, float], bool]
"""Takes samples and accuracy after an evaluation; returns whether to stop the trial."""


class _Reporter(RunProgress):
    """Send evaluations to the study instead of printing them; end the rank if the study is gone."""

    def __init__(self, system: System, receiver: Connection | None) -> None:
        super().__init__(system, enabled=False)
        self._receiver = receiver

    def evaluated(self, samples: int, accuracy: float) -> None:
        """Send one evaluation."""
        if self._receiver is None:
            return
        try:
            self._receiver.send((samples, accuracy))
        except BrokenPipeError:
            os._exit(RunError.exit_code)


def run_trial(trial: Trial, watch: Watch, neighbours: int) -> Outcome:
    """Run a trial until it ends or `watch` stops it; `neighbours` trials, this one included, share the cores.

    Raises RunError if it fails. A loss that isn't finite doesn't count as a failure: the rate was too high.
    """
    trial.files.log.parent.mkdir(parents=True, exist_ok=True)
    trial.files.discard()
    evaluations, sender = _CONTEXT.Pipe(duplex=False)
    ranks = [
        _CONTEXT.Process(target=_rank, args=(given, trial, neighbours, None if rank else sender), daemon=True)
        for rank, given in enumerate(environments_of(trial.system.world_size))
    ]
    for process in ranks:
        process.start()
    sender.close()
    samples, accuracy, stopped = 0, 0.0, False
    try:
        while not stopped and (evaluation := _next(evaluations)):
            samples, accuracy = evaluation
            stopped = watch(samples, accuracy)
        if not stopped:
            for process in ranks:
                process.join()
    finally:
        for process in ranks:
            process.kill()
        for process in ranks:
            process.join()
    steps = _steps(trial.files.metrics)
    failed = any(process.exitcode for process in ranks) and not stopped
    if not steps or (failed and math.isfinite(steps[-1]["loss"])):
        raise RunError(f"{trial.name}: the run failed, seed {trial.seed}; see its ranks' messages above")
    close_log(trial.files, f"stopped after {samples} samples: others were better" if stopped else None)
    clipped = [step["clipped"] for step in steps]
    return Outcome(
        samples if accuracy >= trial.system.evaluation.target else None,
        accuracy,
        round(statistics.mean(clipped), 4),
        round(statistics.mean(share > 0 for share in clipped), 4),
    )


def _next(evaluations: Connection) -> tuple[int, float] | None:
    try:
        return evaluations.recv()
    except EOFError:  # rank 0 has ended
        return None


def _steps(metrics: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()] if metrics.exists() else []


def _rank(environment: Mapping[str, str], trial: Trial, neighbours: int, sender: Connection | None) -> None:
    os.environ.update(environment)
    try:
        with join(trial.system.launch.device, trial.system.launch.timeout_s) as world:
            torch.set_num_threads(max(1, available_cores() // (world.size * neighbours)))
            files = trial.files if world.leads else None
            if files:
                files.describe(trial.system, trial.seed)
            train(trial.system, world, trial.seed, files, _Reporter(trial.system, sender))
    except (BertbenchError, RuntimeError) as error:
        if not isinstance(error, BertbenchError) and not lost_contact(error):
            raise
        print(f"{trial.name}, rank {environment['RANK']}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        os._exit(RunError.exit_code)  # without waiting for collectives that the other ranks will never enter
