"""`lab parallel`: train one model under several layouts at equal global batch, with gloo ranks on this machine.

Every layout computes a step in the same number of parts (Megatron's microbatches): a single rank takes them in turn,
data-parallel ranks share them. First it times steps, with evaluations off the clock; then it profiles a few. Layouts
with more ranks than this machine has cores are left out: there ranks would share cores, and times would say nothing.
"""

import json
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.data.store.dataset import Dataset
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import Loader
from bertbench.model.flops import training_flops
from bertbench.model.loss import IGNORED, cross_entropy_sum
from bertbench.training.build import make_evaluator, make_sampler, make_trainer
from lab.bench.peak import MatrixProducts

PARTS = 8  # in a step: twice the longest pipeline, so that the bubble is 3/8 of the time and doesn't hide all else
_LAYOUTS = {"data 1": (1, 1), "data 2": (2, 1), "data 4": (4, 1), "pipeline 2": (1, 2), "pipeline 4": (1, 4)}
_EVALUATIONS = 4
_PROFILED = 5  # steps
_PRODUCTS = 5
_WINDOW = "profiled steps"
_COMMUNICATION = ("c10d::", "gloo:")


@dataclass(frozen=True)
class Row:
    """One layout with one seed."""

    layout: str
    ranks: int
    seed: int
    runtime_s: float
    """Time of the timed steps, without evaluations."""
    samples_per_s: float
    validation_loss: float
    """Mean cross-entropy of the evaluation set's masked tokens, after the timed steps."""
    accuracy: float
    utilisation: list[float]
    """Share of the time in which each rank runs a torch operator other than communication."""
    model_flop_utilisation: float
    """Model FLOPs a second (parallel/theory.py) over what matrix products reach on the cores that the ranks have."""
    curve: list[tuple[int, float]]
    """Samples and validation loss at every evaluation."""

    @property
    def least_busy(self) -> float:
        """Return the smallest share of the ranks."""
        return min(self.utilisation)


def layouts_of(name: str, steps: int) -> dict[str, System]:
    """Return a system in every layout that this machine has cores for, for a study of `steps` steps.

    Raises ConfigError if the system doesn't fit one of them.
    """
    system = load_system(name)
    batch, layers, stages = system.global_batch_size, system.model.layers, max(sizes for _, sizes in _LAYOUTS.values())
    if batch % PARTS or layers % stages:
        raise ConfigError(
            f"{system.name}: expected a global batch in multiples of {PARTS} and layers in multiples of {stages}, "
            f"found {batch} and {layers}; change them, or choose another system"
        )
    length = steps + _PROFILED
    systems = {}
    for layout, (data, pipeline) in _LAYOUTS.items():
        if data * pipeline > available_cores():
            continue
        accumulated, microbatches = (PARTS // data, 1) if pipeline == 1 else (1, PARTS)
        settings = {
            "hardware.number_of_nodes": 1, "launch.device": "cpu", "launch.ranks_per_node": data * pipeline,
            "data.global_batch_size": batch, "data.local_batch": None,
            "data.gradient_accumulation_steps": accumulated, "parallel.tensor": 1, "parallel.pipeline": pipeline,
            "parallel.microbatches": microbatches, "parallel.schedule": "1f1b", "parallel.virtual_stages": 1,
            "parallel.fully_shard": False, "parallel.sequence": False, "schedule.max_steps": length,
            "evaluation.max_samples": None,
        }  # fmt: skip
        try:
            systems[layout] = load_system(name, [f"{key}={json.dumps(value)}" for key, value in settings.items()])
        except ConfigError as error:
            raise ConfigError(f"{layout}: {error}") from error
    return systems


def run_parallel(name: str, steps: int, seeds: int, progress: Progress) -> list[Row]:
    """Train a system in every layout, once per seed. Raises ConfigError or DataError for an unusable system or data."""
    systems = layouts_of(name, steps)
    training, _ = open_data(systems["data 1"])  # report bad data before ranks start
    most = _most_samples_per_core(systems["data 1"], training)
    rows = []
    for seed in range(1, seeds + 1):
        for layout, system in systems.items():
            progress.message(f"{layout}, seed {seed}: {steps} steps of {system.global_batch_size} samples")
            rows.append(on_ranks(system.world_size, _on_rank, layout, system, seed, steps, most * system.world_size))
    return rows


def medians(rows: Iterable[Row]) -> list[Row]:
    """Return one row per layout: each number's median over the seeds, and the first seed's curve."""
    by_layout: dict[str, list[Row]] = {}
    for row in rows:
        by_layout.setdefault(row.layout, []).append(row)
    return [_median(own) for own in by_layout.values()]


def busy_share(window: FunctionEvent) -> float:
    """Return the share of the profiled steps that the stepping thread spends in operators other than communication."""
    return _busy_us(window) / window.cpu_time_total


def _busy_us(event: FunctionEvent) -> float:
    if event.name.startswith(_COMMUNICATION):
        return 0.0
    return sum(map(_busy_us, event.cpu_children)) if event.is_user_annotation else event.cpu_time_total


def _most_samples_per_core(system: System, training: Dataset) -> float:
    """Return the most samples a second that one core's matrix products allow: best of a few trials, mean sample."""
    ids, products, threads = np.arange(len(training)), MatrixProducts(torch.device("cpu")), torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(_PRODUCTS):
        products.try_again(torch.float32)
    torch.set_num_threads(threads)
    flops = training_flops(system.model.shape(), training.lengths(ids), training.masked(ids).sum())
    return products.flops[torch.float32] * len(training) / flops


def _on_rank(world: World, layout: str, system: System, seed: int, steps: int, most_samples_per_s: float) -> Row:
    torch.set_num_threads(1)  # every layout gets one core a rank, where the machine has enough
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's tracer prints four lines a rank otherwise
    training, evaluation = open_data(system)
    sampler = make_sampler(system, training, seed)
    trainer = make_trainer(system, world, seed, sampler)
    evaluator = make_evaluator(system, evaluation, trainer, world)
    place = system.layout.coordinate(world.rank).data
    ahead = Loader(sampler, place, world.device).steps(range(system.max_steps))
    loaded = enumerate(world.watchdog.around(ahead, 0))
    batch = system.global_batch_size

    def step() -> None:
        number, (parts, *_) = next(loaded)
        trainer.step(number, parts)

    def validation() -> tuple[float, float]:
        loss, correct, masked = evaluator.sums(trainer.model, system.precision.compute, _loss_and_hits, 3)
        return loss / masked, correct / masked

    loss, accuracy = validation()
    runtime, curve = 0.0, [(0, loss)]
    due = sorted({steps * number // _EVALUATIONS for number in range(_EVALUATIONS + 1)})
    for first, stop in pairwise(due):
        world.barrier()
        began = time.perf_counter()
        for _ in range(first, stop):
            step()
        world.barrier()
        runtime += time.perf_counter() - began
        loss, accuracy = validation()
        curve.append((stop * batch, loss))

    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function(_WINDOW):
        for _ in range(_PROFILED):
            step()
    window = next(event for event in profiler.events() if event.name == _WINDOW)
    utilisation = world.from_all(busy_share(window))
    trainer.close()
    rate = steps * batch / runtime
    return Row(layout, world.size, seed, runtime, rate, loss, accuracy, utilisation, rate / most_samples_per_s, curve)


def _loss_and_hits(masked_lm_MV: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the sum of cross-entropies, correct predictions and masked tokens."""
    labels_M = batch.masked_labels_M
    hits = masked_lm_MV.argmax(dim=-1) == labels_M
    return torch.stack((cross_entropy_sum(masked_lm_MV, labels_M), hits.sum(), (labels_M != IGNORED).sum()))


def _median(rows: Sequence[Row]) -> Row:
    numbers: dict[str, Any] = {
        name: statistics.median(getattr(row, name) for row in rows)
        for name, value in vars(rows[0]).items()
        if isinstance(value, float)
    }
    shares = zip(*(row.utilisation for row in rows), strict=True)
    return replace(rows[0], **numbers, utilisation=[statistics.median(of_rank) for of_rank in shares])
