"""A whole dry run: what a rank holds, sends and works through, how long the run will take, and what would stop it."""

import math
from dataclasses import dataclass

import numpy as np

from bertbench.common.errors import BertbenchError, ConfigError
from bertbench.common.paths import weights_file
from bertbench.config import System
from bertbench.data.store.dataset import Dataset
from bertbench.dry_run.layouts import Outlook, activation_bytes, capacity_gb, memory_gb, outlook
from bertbench.dry_run.rank import CountedRank, count_rank, link_bytes_per_step
from bertbench.dry_run.steps import Steps, first_steps
from bertbench.forecast.forecast import Forecast, forecast
from bertbench.forecast.layout import load_of
from bertbench.loading.inputs import open_data
from bertbench.parallel.theory import sent_bytes, stage_parameters

_GB = 1e9
_WEIGHT_BYTES = 4  # fp32, as gradients
_MLPERF_EVALUATION_SAMPLES = 10_000


@dataclass(frozen=True)
class DryRun:
    """What `bertbench plan` prints of one rank of a system."""

    system: System
    rank: int
    counted: CountedRank
    steps: Steps
    evaluation_samples: int
    forecast: Forecast | None
    """None where nothing is calibrated: for CPUs and other models."""
    outlook: Outlook | None
    """Of the layout, where it splits the model and the GPUs are known."""
    problems: list[str]

    @property
    def sent_bytes(self) -> dict[str, int]:
        """What the rank sends in a step, by dimension of the layout, with parts of the largest size."""
        tokens = round(self.system.parts * load_of(self.system).most_tokens) if self.system.parallel.splits else 0
        return sent_bytes(self.system, self.system.layout.coordinate(self.rank), tokens)

    @property
    def training_activations_gb(self) -> float:
        """What a training step's largest backward pass needs kept, in bytes / 10^9."""
        return activation_bytes(self.system, _part(self.system, self.steps)) / _GB

    @property
    def memory_gb(self) -> dict[str, float]:
        """Bytes / 10^9 by what they hold; the largest moment is their sum."""
        return _memory(self.system, self.counted, self.steps)

    @property
    def memory_gb_per_gpu(self) -> float:
        """Largest sum of what stays and of what one backward pass needs."""
        return sum(self.memory_gb.values())

    @property
    def link_bytes_per_step(self) -> int:
        """What the rank sends over its link, as rings do it."""
        return link_bytes_per_step(
            self.counted.bytes_per_step,
            self.counted.parameters,
            self.system.layout.data,
            self.system.optimizer.sharded,
            self.system.communication.compression,
        )


def dry_run(system: System, rank: int) -> DryRun:
    """Rehearse one rank.

    Raises ConfigError if there is no such rank, or if no step can be planned.
    """
    if not 0 <= rank < system.world_size:
        raise ConfigError(f"--rank {rank}: {system.name} has ranks 0 to {system.world_size - 1}; choose one of them")
    problems, data = _missing(system)
    training, evaluation = data or (None, None)
    steps = first_steps(system, rank, training)
    counted = _of_part(system, rank) if system.parallel.splits else count_rank(system, rank)
    evaluated = len(evaluation) if evaluation is not None else _MLPERF_EVALUATION_SAMPLES
    awaited = _forecast(system)
    problems += steps.problems + _too_large(system, counted, steps) + _too_long(system, awaited)
    return DryRun(system, rank, counted, steps, evaluated, awaited, _outlook(system), problems)


def _of_part(system: System, rank: int) -> CountedRank:
    """Describe a rank that holds a part of the model."""
    held = stage_parameters(system.model.shape(), system.layout, system.layout.coordinate(rank).pipeline)
    held //= system.layout.data if system.parallel.fully_shard else 1
    return CountedRank(held, (held,), 2 * _WEIGHT_BYTES * held, _WEIGHT_BYTES * held)


def _part(system: System, steps: Steps) -> tuple[float, float]:
    """Return tokens and pairs of tokens of a rank's largest microbatch: planned, or if split those of equal parts."""
    if system.parallel.splits:
        load = load_of(system)
        return load.most_tokens, load.most_pairs
    return float(steps.longest_part.sum()), float(np.square(steps.longest_part).sum())


def _memory(system: System, counted: CountedRank, steps: Steps) -> dict[str, float]:
    found = memory_gb(system, _part(system, steps))
    return found if system.parallel.splits else found | {"optimizer": counted.optimizer_bytes / _GB}


def _missing(system: System) -> tuple[list[str], tuple[Dataset, Dataset] | None]:
    """Return what the run would not find, and its data if that is there."""
    problems, data = [], None
    try:
        data = open_data(system)
    except BertbenchError as error:
        problems.append(str(error))
    if system.model.checkpoint is not None:
        from bertbench.checkpoint.start import check_weights  # noqa: PLC0415 - torch's checkpoints take a second

        path = weights_file(system.model.checkpoint)
        try:
            if data is not None:
                check_weights(system, path)
            elif not path.exists():
                problems.append(
                    f"{path}: found no weights; make them with `bertbench checkpoint import` (docs/checkpoint.md), or "
                    "set DATADIR"
                )
        except BertbenchError as error:
            problems.append(str(error))
    return problems, data


def _outlook(system: System) -> Outlook | None:
    try:
        return outlook(system) if system.parallel.splits else None
    except ConfigError:  # not on GPUs of a known kind
        return None


def _too_large(system: System, counted: CountedRank, steps: Steps) -> list[str]:
    memory = _memory(system, counted, steps)
    needed = sum(memory.values())
    # NVIDIA's GB are nearer to 2^30: what 10^9 leaves, 7 %, is for CUDA, NCCL and gaps between tensors
    there = capacity_gb(system)
    if system.launch.device != "cuda" or there is None or needed <= there:
        return []
    when = "in warm-up, all of whose sequences have full length" if "warm_up_copy" in memory else "in training"
    return [
        f"a GPU needs {needed:.0f} GB {when} ({memory['activations']:.0f} GB of them activations), "
        f"it has {there:g} GB; raise data.gradient_accumulation_steps, or split the model: --layouts lists ways"
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


def _forecast(system: System) -> Forecast | None:
    try:
        return forecast(system)
    except ConfigError:  # not BERT-Large on GPUs of a known kind
        return None


def evaluation_steps(system: System) -> list[int]:
    """Return the steps after which the run evaluates, up to its limit."""
    return [stop for _, stop in system.blocks()]


def evaluation_share(samples: int, ranks: int) -> int:
    """Held-out samples of the rank that has most of them."""
    return math.ceil(samples / ranks)
