"""Simulate balance without GPUs: plan steps of any world with training's own code, and measure the plans."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import default_rng

from bertbench.balance.cost import BERT_LARGE, CostModel
from bertbench.balance.plan import METHODS, Balance, Planner, bytes_received, efficiency
from bertbench.balance.random_samples import draw_lengths, length_counts, predictions
from bertbench.common.errors import DataError
from bertbench.common.seeding import derive
from bertbench.data.store.columns import MAX_LENGTH, Floats, Index, pack
from bertbench.data.store.dataset import Dataset

# bounds of the sequences that are drawn for a histogram, unless the steps need more; 64 MB at most
_FEWEST = 1 << 20
_MOST = 1 << 25

VARIANTS: dict[str, Balance] = {
    **{method: Balance(method, BERT_LARGE) for method in METHODS},
    "presort_raster": Balance("presort", BERT_LARGE, row_order="raster"),
    "stratified_presort_raster": Balance("stratified_presort", BERT_LARGE, row_order="raster"),
    "planned_equal_counts": Balance("planned", BERT_LARGE, equal_counts=True),
    "planned_local_equal_counts": Balance("planned_local", BERT_LARGE, equal_counts=True),
}
"""Methods that can be simulated, by name, with the options that change how they balance."""


@dataclass(frozen=True)
class SimulatedBalance:
    """Means over the simulated steps of one method on one world."""

    method: str
    gpus: int
    local_batch: int
    load_efficiency: float
    """The mean load divided by the largest load, by the costs that score the plans, with noise."""
    token_efficiency: float
    """The same ratio, with tokens as the load."""
    samples_per_step: float
    tokens_per_step: float
    cost_per_step: float
    """Sum of all ranks' loads, in operations, without noise."""
    bytes_per_rank_per_step: float
    plan_ms_per_step: float


def population(path: Path, seed: int, samples: int) -> Index:
    """Return the index of a data folder, or of at least `samples` random samples with the lengths of a histogram.

    Raises DataError if `path` is neither.
    """
    if path.is_dir():
        return Dataset.open(path, "train").entries_N
    if path.suffix == ".npy":
        return Dataset.open(path.parent.parent, "train").entries_N
    counts = length_counts(path)
    if len(counts) > MAX_LENGTH:
        raise DataError(f"{path}: counts lengths up to {len(counts)}, expected at most {MAX_LENGTH}")
    total = counts.sum()
    return drawn_index(max(samples, int(np.clip(total, _FEWEST, _MOST))), seed, counts / total)


def drawn_index(samples: int, seed: int, shares: Floats | None = None) -> Index:
    """Return the index of samples with lengths drawn from the shares (default: Wikipedia's)."""
    lengths = draw_lengths(samples, seed, shares)
    return pack(lengths, predictions(lengths))


def simulate(
    entries_N: Index, name: str, balance: Balance, cost: CostModel, noise: float, gpus: int, batch: int,
    gpus_per_node: int, steps: int, seed: int,
) -> SimulatedBalance:  # fmt: skip
    """Plan `steps` steps of a variant. Raises ConfigError if the dataset is smaller than a global batch.

    `cost` and `noise` score the plans: `cost` gives the work of a sequence, `noise` the standard deviation of the
    logarithm of each rank's time in each step.
    """
    variant = planner(entries_N, balance, gpus, batch, gpus_per_node, seed)
    noise_generator = default_rng(derive(seed, "noise"))
    measurements = []
    for step in range(steps):
        began = time.perf_counter()
        plan = variant.plan(step)
        planning_ms = 1e3 * (time.perf_counter() - began)
        lengths_S = variant.lengths(plan.assigned)
        tokens_R = plan.assigned.sums(lengths_S)
        loads_R = plan.assigned.sums(cost.of_length[lengths_S])
        measurements.append(
            {
                "load_efficiency": efficiency(loads_R * noise_generator.lognormal(sigma=noise, size=gpus)),
                "token_efficiency": efficiency(tokens_R),
                "samples_per_step": len(plan.assigned.ids_S),
                "tokens_per_step": tokens_R.sum(),
                "cost_per_step": loads_R.sum(),
                "bytes_per_rank_per_step": bytes_received(entries_N, variant, plan),
                "plan_ms_per_step": planning_ms,
            }
        )
    means = np.mean([tuple(measured.values()) for measured in measurements], axis=0).tolist()
    return SimulatedBalance(name, gpus, batch, **dict(zip(measurements[0], means, strict=True)))


def planner(entries_N: Index, balance: Balance, gpus: int, batch: int, gpus_per_node: int, seed: int) -> Planner:
    """Return the planner of one variant for a number of GPUs, which fill whole nodes, or a part of one."""
    in_node = min(gpus, gpus_per_node)
    return Planner(entries_N, balance, gpus * batch, seed, gpus // in_node, in_node)
