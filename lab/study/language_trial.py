"""Run one trial of the made-up language, from random weights to the target."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from bertbench.common.seeding import derive
from bertbench.config.optimizer import OptimizerSettings
from bertbench.config.schedule import Schedule
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.optim.build import build_optimizer
from lab.study.engine import Outcome
from lab.study.language_study import LanguageStudy, masked_accuracy
from lab.study.virtual_ranks import Reduced

Reduce = Callable[[Sequence[LoadedPart]], Reduced]
"""Leaves the sum of the gradients of all ranks' shares in every parameter's `grad`."""


def to_target(
    definition: LanguageStudy,
    chosen: OptimizerSettings,
    model: Bert,
    reduce: Reduce,
    ranks: int,
    seed: int,
    most_samples: float = math.inf,
) -> Outcome:
    """Train on batches that are dealt to `ranks`, until the target, the schedule's end or `most_samples`.

    Samples to target are interpolated between evaluations. The seed fixes the order of the data, in every arm.
    """
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
    samples: float | None = None
    clipped: list[torch.Tensor] = []
    for step in range(math.ceil(min(schedule.max_steps, most_samples / batch_size))):
        reduced = reduce(language.shares(draws, batch_size, ranks))
        clipped.append(reduced.clipped)
        optimizer.step(rates.rate(step), reduced.coefficient)
        if (step + 1) % interval == 0:
            before, accuracy = accuracy, masked_accuracy(model, held_out)
            if accuracy >= target:
                crossed = (step + 1 - interval) + interval * (target - before) / (accuracy - before)
                samples = crossed * batch_size
            if samples is not None or not math.isfinite(reduced.loss.item()):
                break
    shares = torch.stack(clipped)
    return Outcome(samples, accuracy, round(shares.mean().item(), 4), round((shares > 0).float().mean().item(), 4))
