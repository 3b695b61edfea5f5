"""Run one trial of the made-up language (language.py), from its start to the target.

Gradients are those of virtual ranks in this process, or of real gloo ranks where they are compressed.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial
from typing import Any, Self

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveFloat, ValidationError, model_validator
from torch import Tensor

from bertbench.common.errors import ConfigError
from bertbench.common.json_object import first_problem
from bertbench.common.section import Count, Fraction, Section, Share
from bertbench.common.seeding import derive
from bertbench.config.optimizer import ClipMode, Communication, Compression, LearningRate, OptimizerSettings
from bertbench.config.sections import Evaluation, Model
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets, bucket_table, ready_order
from bertbench.gradients.clip import gradient_norm, make_clip
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import sum_class
from bertbench.gradients.reducer import GradientReducer
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.optim.build_optimizer import build_optimizer
from bertbench.training.trainer import tiny_backward
from lab.study.engine import TrialOutcome
from lab.study.language import Language
from lab.study.virtual_ranks import ReducedGradients, VirtualRanks, add_gradients

_EVALUATION_SEED = 0  # the same for every run, so that all are scored on the same samples
_START_SEED = 500  # comparisons count from 1, tuning from 1000
_NEVER = 1e15  # samples

Reduce = Callable[[Sequence[LoadedPart]], ReducedGradients]
"""Leaves the sum of the gradients of all ranks' shares in every parameter's `grad`."""


class Words(Section):
    """The language; the model's vocabulary and positions fix its words and lengths."""

    followers: Count
    """Words that may follow a word."""
    masked: Count
    """Masked words of a sequence."""
    held_out: Count
    """Sequences of the evaluation."""


class Start(Section):
    """A common checkpoint: Adam on the same language, without decay. MLPerf's, too, saw the run's own corpus."""

    learning_rate: PositiveFloat
    batch: Count
    accuracy: Share
    """The first evaluation with this accuracy ends its training."""
    max_samples: Count


class LanguageSetting(Section):
    """What one run trains."""

    model: Model
    words: Words
    optimizer: OptimizerSettings
    decay_samples: PositiveFloat
    """Samples in which the rate falls to `floor`."""
    max_samples: PositiveFloat | None = None
    """Samples after which a run ends; `decay_samples` where they aren't given."""
    warmup: Fraction = 0.05
    """Share of the decay in which the rate rises."""
    floor: Fraction = 0.0
    """Share of the rate that decay ends at. A run that has missed the target trains at it until `max_samples`."""
    global_batch_size: Count
    evaluation: Evaluation
    start: Start | None = None
    """Random weights where it isn't given."""
    ranks: Count = 1
    mode: ClipMode = "none"
    max_norm: PositiveFloat = 1.0
    buckets: Count | None = None
    """Number of gradient buckets that `bucket_mb` has to make."""
    bucket_mb: PositiveFloat | None = None
    exponent: NonNegativeFloat = 0.5
    """With B buckets, each rank clips each bucket to norm max_norm / (ranks B^exponent)."""
    compression: Compression | None = None
    """On real gloo ranks; none where it isn't given."""
    topk_share: Share = 0.01

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        batch, interval = self.global_batch_size, self.evaluation.interval_samples
        if self.model.max_positions % 2 or self.words.masked >= self.model.max_positions:
            raise ValueError("model.max_positions must be even and above words.masked; change one of them")
        if interval is None or interval % batch:
            raise ValueError(
                f"evaluation.interval_samples {interval} is not a multiple of global_batch_size {batch}; choose one, "
                "because a run evaluates between steps"
            )
        if batch % self.ranks:
            raise ValueError(f"ranks {self.ranks} don't divide global_batch_size {batch}; change one")
        if self.optimizer.sharded or self.optimizer.ema_decay:
            raise ValueError("found optimizer.sharded or optimizer.ema_decay; leave both out")
        return self

    def language(self) -> Language:
        """Return the language that all runs learn."""
        model = self.model
        return Language(model.vocab_size, self.words.followers, model.max_positions, self.words.masked)

    def held_out(self) -> Batch:
        """Return the sequences that every evaluation reads."""
        draws = np.random.default_rng(_EVALUATION_SEED)
        return self.language().shares(draws, self.words.held_out, 1)[0].batch


def read_setting(shared: dict[str, Any], changes: Mapping[str, Any]) -> LanguageSetting:
    """Return the shared setting with changes, named as in --set. Raises ConfigError if they aren't one."""
    content = deepcopy(shared)
    for name, value in changes.items():
        *sections, last = name.split(".")
        inner = content
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    try:
        return LanguageSetting.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"setting: {first_problem(error)}; correct it in the definition") from error


def run_setting(setting: LanguageSetting, seed: int, most_samples: float = math.inf) -> TrialOutcome:
    """Train until the target, the end or `most_samples`; a seed fixes weights and data of all configurations.

    Raises ConfigError if `bucket_mb` doesn't make `buckets` buckets.
    """
    if setting.compression is not None:
        outcome: TrialOutcome = on_ranks(setting.ranks, run_on_ranks, setting, seed, most_samples)
        return outcome
    model = initial_language_model(setting, seed)
    ranks = VirtualRanks(model, setting.mode, setting.max_norm, setting.ranks, setting.bucket_mb, setting.exponent)
    buckets = len(ranks.buckets)
    if setting.buckets not in (None, buckets):
        raise ConfigError(
            f"bucket_mb {setting.bucket_mb} makes {buckets} buckets of this model, expected {setting.buckets}; choose "
            "another size"
        )
    return to_target(setting, model, ranks.reduce, seed, most_samples)


def run_on_ranks(world: World, setting: LanguageSetting, seed: int, most_samples: float) -> TrialOutcome:
    """Do `run_setting` with gradients that real ranks sum. Collective."""
    torch.set_num_threads(1)
    model = initial_language_model(setting, seed)
    return to_target(setting, model, real_ranks(world, setting, model), seed, most_samples)


def real_ranks(world: World, setting: LanguageSetting, model: Bert) -> Reduce:
    """Return what clips, compresses and sums the gradients of real ranks."""
    order = ready_order(model, lambda: tiny_backward(lambda batch: model(*batch.inputs), model.shape))
    buckets = Buckets(bucket_table(order, setting.bucket_mb))
    clip = make_clip(setting.mode, setting.max_norm, world.size, len(buckets.all))
    options = Communication(compression=setting.compression or "none", topk_share=setting.topk_share)
    gradient_sum = sum_class(options.compression)(options, Exchange())
    reducer = GradientReducer(buckets, clip, gradient_sum, partial(gradient_norm, list(model.parameters())))

    def reduce(shares: Sequence[LoadedPart]) -> ReducedGradients:
        reducer.drop()
        loss = add_gradients(model, [shares[world.rank]])
        reduced = reducer.finish()
        return ReducedGradients(world.sum(loss), reduced.clipped, reduced.factor)

    return reduce


def to_target(
    setting: LanguageSetting, model: Bert, reduce: Reduce, seed: int, most_samples: float = math.inf
) -> TrialOutcome:
    """Train a model on batches that ranks share; samples to target are interpolated between evaluations."""
    language = setting.language()
    held_out = setting.held_out()
    batch = setting.global_batch_size
    target = setting.evaluation.target
    optimizer, _ = build_optimizer(model, setting.optimizer)
    decay = max(1, round(setting.decay_samples / batch))
    peak = setting.optimizer.learning_rate
    warm_up = max(1, round(setting.warmup * decay))
    rates = LearningRate(peak, setting.floor * peak, warm_up, -1, decay)
    draws = np.random.default_rng(derive(seed, "data"))
    steps = math.ceil(min(setting.max_samples or setting.decay_samples, most_samples) / batch)
    interval = (setting.evaluation.interval_samples or batch) // batch
    samples: float | None = None
    accuracy = 0.0
    seconds = 0.0
    clipped: list[Tensor] = []
    for step in range(1, steps + 1):
        began = time.process_time()  # leaves out other programs
        reduced = reduce(language.shares(draws, batch, setting.ranks))
        optimizer.step(rates.rate(step - 1), reduced.coefficient)
        seconds += time.process_time() - began
        clipped.append(reduced.clipped)
        if step % interval == 0:
            before = accuracy
            accuracy = masked_accuracy(model, held_out)
            if accuracy >= target:
                share = (target - before) / (accuracy - before)
                samples = (step - interval + interval * share) * batch
                seconds *= samples / (step * batch)
            if samples is not None or not math.isfinite(reduced.loss.item()):
                break
    shares = torch.stack(clipped)
    return TrialOutcome(
        samples,
        accuracy,
        clipped=round(shares.mean().item(), 4),
        clipped_steps=round((shares > 0).float().mean().item(), 4),
        seconds=seconds,
    )


def initial_language_model(setting: LanguageSetting, seed: int) -> Bert:
    """Return a model of random weights that the seed fixes, or of the weights of `start`, the same for all seeds."""
    model = Bert(setting.model.shape())
    if setting.start is None:
        model.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
    else:
        model.load_state_dict(_trained(setting.model, setting.words, setting.start))
    return model


@cache
def _trained(shape: Model, words: Words, start: Start) -> dict[str, Tensor]:
    """Return the weights of a start. Raises ConfigError if its training doesn't reach the accuracy asked for."""
    adam = OptimizerSettings(name="adam", learning_rate=start.learning_rate, epsilon=1e-8)
    setting = LanguageSetting(
        model=shape, words=words, optimizer=adam, decay_samples=_NEVER, warmup=0.0, max_samples=start.max_samples,
        global_batch_size=start.batch, evaluation=Evaluation(target=start.accuracy, interval_samples=start.batch),
    )  # fmt: skip
    model = initial_language_model(setting, _START_SEED)
    one_rank = VirtualRanks(model, mode="none", max_norm=1.0, ranks=1, bucket_mb=None)
    if to_target(setting, model, one_rank.reduce, _START_SEED).samples is not None:
        return model.state_dict()
    raise ConfigError(
        f"start: found no accuracy of {start.accuracy} within {start.max_samples:,} samples at width "
        f"{shape.hidden_size}; allow more samples, or another rate"
    )


@torch.no_grad()
def masked_accuracy(model: Bert, batch: Batch) -> float:
    """Return the share of a batch's masked words that the model ranks first."""
    scores = model(*batch.inputs)
    return (scores.masked_lm_MV.argmax(1) == batch.masked_labels_M).float().mean().item()
