"""Run one trial of a system: an ordinary run with all its ranks as processes of this machine, with log and metrics."""

import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessException

from bertbench.common.errors import RunError
from bertbench.config import System, load_system
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.results.files import ResultFiles
from lab.bench.whole_run import read_run, train_quietly
from lab.study.engine import Outcome


def trial_system(name: str, settings: Mapping[str, Any], most_samples: float = math.inf) -> System:
    """Return a trial's system, which gives up at `most_samples`; raises ConfigError if settings don't fit it."""
    limit = {} if math.isinf(most_samples) else {"evaluation.max_samples": max(1, round(most_samples))}
    given = {**settings, "checkpoint.final_weights": False, **limit}
    return load_system(name, [f"{name}={json.dumps(value)}" for name, value in given.items()])


def run_system(system: System, seed: int, log: Path, neighbours: int) -> Outcome:
    """Run a system until its target or its end; `neighbours` trials, this one included, share the cores.

    Raises RunError if it fails. A loss that isn't finite doesn't count as a failure: the rate was too high.
    """
    files = ResultFiles(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    files.discard()
    try:
        problem = on_ranks(system.world_size, _on_rank, system, seed, log, neighbours)
    except ProcessException as error:
        problem = str(error)
    lines = files.metrics.read_text(encoding="utf-8").splitlines() if files.metrics.exists() else []
    steps = [json.loads(line) for line in lines]
    if problem and (not steps or math.isfinite(steps[-1]["loss"])):
        raise RunError(f"{log}: the run failed, seed {seed}: {problem}")
    run = read_run(log, to_target=True)
    clipped = [step["clipped"] for step in steps]
    return Outcome(
        run.samples if run.reached else None,
        run.course[-1][1] if run.course else 0.0,
        round(statistics.mean(clipped), 4),
        round(statistics.mean(share > 0 for share in clipped), 4),
        run.seconds,
    )


def _on_rank(world: World, system: System, seed: int, log: Path, neighbours: int) -> str:
    """Train, and return why it failed on all ranks."""
    torch.set_num_threads(max(1, available_cores() // (world.size * neighbours)))
    try:
        train_quietly(world, system, seed, log)
    except RunError as error:
        return str(error)
    return ""
