"""Measure the cost of clipping bucket by bucket: steps that only sum beside steps that clip before each sum.

Both models run in the same ranks on the same batch, in alternating order, so that the machine's other work affects
both equally.
"""

import statistics
import time
from dataclasses import dataclass

import torch

from bertbench.config import System
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.training.whole_trainer import WholeTrainer


@dataclass(frozen=True)
class HookCost:
    """Medians in milliseconds a step, on rank 0."""

    sum_only_ms: float
    bucket_clip_ms: float
    cost: float
    """Median over pairs of neighbouring steps of the clipping step's extra time, as a share."""


def measure(sum_only: System, bucket_clip: System, steps: int) -> HookCost:
    """Take `steps` steps of both systems, which differ only in clip.mode, on their number of local CPU ranks."""
    cost: HookCost = on_ranks(sum_only.world_size, _on_rank, sum_only, bucket_clip, steps)
    return cost


def _on_rank(world: World, sum_only: System, bucket_clip: System, steps: int) -> HookCost:
    trainers = [WholeTrainer(system, world, seed=1) for system in (sum_only, bucket_clip)]
    generator = torch.Generator().manual_seed(world.rank)
    size_of_batch, model = sum_only.local_batch, sum_only.model
    batch = synthetic(size_of_batch, model.max_positions, model.vocab_size, generator)
    weights = (1 / (world.size * len(batch.masked_at_M)), 1 / (world.size * size_of_batch))
    loaded = [LoadedPart(Part(torch.arange(size_of_batch).numpy(), *weights), batch)]
    times: list[list[float]] = [[], []]
    for number in range(steps):
        pairs = list(zip(trainers, times, strict=True))
        for trainer, own in pairs if number % 2 else reversed(pairs):
            began = time.perf_counter()
            trainer.step(number, loaded)
            own.append(1e3 * (time.perf_counter() - began))
    for trainer in trainers:
        trainer.close()
    plain, clipping = (statistics.median(own) for own in times)
    cost = statistics.median(clip / plain - 1 for plain, clip in zip(*times, strict=True))
    return HookCost(round(plain, 3), round(clipping, 3), round(cost, 4))
