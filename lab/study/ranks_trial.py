"""Run one trial of a study of virtual ranks, from random weights to the target, in this process."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bertbench.common.seeding import derive
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.optim.build import build_optimizer
from bertbench.optim.options import OptimizerSettings
from bertbench.optim.schedule import Schedule
from lab.study.language_study import LanguageStudy, initial_model, masked_accuracy
from lab.study.ranks_definition import Arm, RanksDefinition, Values
from lab.study.virtual_ranks import Reduced, VirtualRanks

Reduce = Callable[[Sequence[LoadedPart]], Reduced]
"""Leaves the sum of the gradients of all ranks' shares in every parameter's `grad`."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    samples: float | None
    """Training samples at which accuracy crossed the target, interpolated between evaluations; None if missed."""
    accuracy: float
    """Accuracy at the last evaluation."""
    clipped: float
    """Share of clipping decisions that reduced a gradient, mean over the steps."""


def run_trial(definition: RanksDefinition, arm: Arm, values: Values, seed: int, most_samples: float) -> Outcome:
    """Train until the target, the schedule's end or `most_samples`.

    The seed fixes initial weights and the order of the data, in every arm.
    """
    model = initial_model(definition.model, seed)
    ranks = VirtualRanks(model, arm.mode, values.max_norm, arm.ranks, definition.bucket_mb)
    return to_target(definition, definition.tuned(values), model, ranks.reduce, arm.ranks, seed, most_samples)


def to_target(
    definition: LanguageStudy,
    chosen: OptimizerSettings,
    model: Bert,
    reduce: Reduce,
    ranks: int,
    seed: int,
    most_samples: float = math.inf,
) -> Outcome:
    """Train on batches that are dealt to `ranks`, until the target, the schedule's end or `most_samples`."""
    language, batch_size = definition.language(), definition.global_batch_size
    optimizer, _ = build_optimizer(model, chosen)
    schedule = definition.schedule
    rates = Schedule(
        chosen.learning_rate, schedule.end_learning_rate, schedule.warmup_steps, schedule.start_warmup_step,
        schedule.decay_steps or schedule.max_steps,
    )  # fmt: skip
    draws = np.random.default_rng(derive(seed, "data"))
    held_out = definition.held_out()
    interval = (definition.evaluation.interval_samples or batch_size) // batch_size
    target, before, accuracy = definition.evaluation.target, 0.0, 0.0
    clipped: list[torch.Tensor] = []
    for step in range(math.ceil(min(schedule.max_steps, most_samples / batch_size))):
        reduced = reduce(language.shares(draws, batch_size, ranks))
        clipped.append(reduced.clipped)
        optimizer.step(rates.rate(step), reduced.coefficient)
        if (step + 1) % interval == 0:
            before, accuracy = accuracy, masked_accuracy(model, held_out)
            if accuracy >= target:
                crossed = (step + 1 - interval) + interval * (target - before) / (accuracy - before)
                return Outcome(crossed * batch_size, accuracy, _mean(clipped))
            if not math.isfinite(reduced.loss.item()):
                break
    return Outcome(None, accuracy, _mean(clipped))


RunTrial = Callable[[RanksDefinition, Arm, Values, int, float], Outcome]


def _mean(shares: list[torch.Tensor]) -> float:
    return round(torch.stack(shares).mean().item(), 4)
