"""A whole dry run: what a rank holds, sends and works through, how long the run will take, and what would stop it."""

import math
import shlex
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from bertbench.checkpoint.start import check_weights
from bertbench.common.errors import BertbenchError, ConfigError
from bertbench.common.paths import weights_file
from bertbench.config import System
from bertbench.data.store.dataset import Dataset
from bertbench.loading.inputs import missing_inputs, open_data, open_split
from bertbench.plan.counted_rank import CountedRank, count_rank
from bertbench.plan.first_steps import Steps, first_steps
from bertbench.plan.forecast import Forecast, forecast
from bertbench.plan.layout_time import load_of
from bertbench.plan.layouts import capacity_gb, memory_gb
from bertbench.plan.parallel_theory import sent_bytes

_GB = 1e9


class DryRun(NamedTuple):
    """What `bertbench plan` prints of one rank of a system."""

    system: System
    rank: int
    counted: CountedRank
    steps: Steps
    memory_gb: dict[str, float]
    """Bytes / 10^9 by what they hold; the largest moment is their sum."""
    sent_bytes: dict[str, int]
    """What the rank sends in a step, by dimension of the layout, with parts of the largest size."""
    evaluation_steps: list[int]
    """Steps after which the run evaluates, up to its limit."""
    forecast: Forecast | None
    """None where nothing is calibrated: for CPUs and other models."""
    problems: list[str]

    @property
    def memory_gb_per_gpu(self) -> float:
        """Largest sum of what stays and of what one backward pass needs."""
        return sum(self.memory_gb.values())

    @property
    def capacity_gb(self) -> float | None:
        """Memory of a GPU by the system file; None for a CPU, and if the file doesn't give it."""
        there = capacity_gb(self.system)
        return None if self.system.launch.device != "cuda" or math.isinf(there) else there


def dry_run(system: System, rank: int) -> DryRun:
    """Rehearse one rank.

    Raises ConfigError if there is no such rank, or if no step can be planned.
    """
    if not 0 <= rank < system.world_size:
        raise ConfigError(f"--rank {rank}: {system.name} has ranks 0 to {system.world_size - 1}; choose one of them")
    problems, training = _missing(system)
    steps, split = first_steps(system, rank, training), system.parallel.splits
    counted = count_rank(system, rank)
    if split:
        load = load_of(system)
        part = load.most_tokens, load.most_pairs
        memory = memory_gb(system, part)
    else:
        part = float(steps.longest_part.sum()), float(np.square(steps.longest_part).sum())
        memory = memory_gb(system, part) | {"optimizer": counted.optimizer_bytes / _GB}
    awaited = None
    with suppress(ConfigError):  # for BERT-Large on GPUs of a known kind only
        awaited = forecast(system)
    return DryRun(
        system, rank, counted, steps, memory,
        sent_bytes(system, system.layout.coordinate(rank), split * round(system.parts * part[0])),
        [stop for _, stop in system.blocks()],
        awaited,
        problems + steps.problems + _too_large(system, memory) + _too_long(system, awaited),
    )  # fmt: skip


def _missing(system: System) -> tuple[list[str], Dataset | None]:
    """Return all that the run would not find, or could not use, and its training data if that is there."""
    problems, training = missing_inputs(system), None
    try:
        training = open_split(system, "train")
        if system.model.checkpoint is not None and (path := weights_file(system.model.checkpoint)).exists():
            check_weights(system, path)
    except BertbenchError as error:
        problems.append(str(error))
    try:
        open_split(system, "eval")
        if training is not None:
            open_data(system)
    except BertbenchError as error:
        problems.append(str(error))
    return list(dict.fromkeys(problems)), training  # what is missing can't be opened either


def _too_large(system: System, memory: dict[str, float]) -> list[str]:
    needed = sum(memory.values())
    # NVIDIA's GB are nearer to 2^30: what 10^9 leaves, 7 %, is for CUDA, NCCL and gaps between tensors
    there = capacity_gb(system)
    if system.launch.device != "cuda" or needed <= there:
        return []
    return [
        f"a GPU needs {needed:.0f} GB ({memory['activations']:.0f} GB of them activations), it has {there:g} GB; "
        "raise data.gradient_accumulation_steps, or split the model: `bertbench estimate "
        f"{shlex.quote(system.argument)} --layouts` lists ways"
    ]


def _too_long(system: System, expected: Forecast | None) -> list[str]:
    if expected is None:
        return []
    problems, granted = [], system.launch.walltime_minutes
    if expected.minutes > granted:
        problems.append(
            f"a run is expected to take {expected.minutes:.0f} minutes, launch.walltime_minutes grants {granted}; "
            "raise it"
        )
    if (limit := system.max_steps * system.global_batch_size) < expected.samples.number:
        problems.append(
            f"the run gives up after {limit:,} samples, {expected.samples.number:,.0f} are expected to reach the "
            "target; raise schedule.max_steps and evaluation.max_samples"
        )
    return problems
