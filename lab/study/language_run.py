"""Run one trial with the made-up language (language.py), from its start to the target.

Gradients are computed by virtual ranks in this process, or by real gloo ranks if a technique sums them.
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
from bertbench.config.optimizer import ClipMode, LearningRate, OptimizerSettings
from bertbench.config.sections import Evaluation, Model
from bertbench.distributed.world import World
from bertbench.gradients.buckets import Buckets, bucket_table, ready_order
from bertbench.gradients.clip import gradient_norm, make_clip
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import ElementSum
from bertbench.gradients.reducer import GradientReducer
from bertbench.loading.batch import Batch
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.optim.build_optimizer import build_optimizer
from bertbench.training.technique import EVERY_STEP, Technique
from bertbench.training.whole_trainer import tiny_backward
from lab.spawn import on_ranks
from lab.study.engine import TrialOutcome
from lab.study.language import Language
from lab.study.virtual_ranks import ReducedGradients, VirtualRanks, add_gradients
from lab.techniques.read import read_technique

_EVALUATION_SEED = 0  # the same for every run, so that all runs are scored on the same samples
_START_SEED = 500  # the seeds of comparisons start at 1, those of tuning at 1000
_NEVER = 1e15  # samples
_NOT_OF_SUMS = ("learning_rate", "optimizer", "view")
"""The parts of a step that a technique may replace, but which a run with the language doesn't take from it."""

Reduce = Callable[[Sequence[LoadedPart]], ReducedGradients]
"""Sets every parameter's `grad` to the sum of the gradients of all ranks' shares."""


class Words(Section):
    """The language; the model's vocabulary and positions determine the number of words and the length of sequences."""

    followers: Count
    """The number of words that may follow a word."""
    masked: Count
    """The number of masked words in a sequence."""
    held_out: Count
    """The number of sequences in the evaluation."""


class Start(Section):
    """A common checkpoint, trained by Adam on the same language without decay.

    The checkpoint of MLPerf was also trained on the corpus of the benchmark.
    """

    learning_rate: PositiveFloat
    batch: Count
    accuracy: Share
    """The first evaluation with this accuracy ends the checkpoint's training."""
    max_samples: Count


class LanguageSetting(Section):
    """The settings of one run."""

    model: Model
    words: Words
    optimizer: OptimizerSettings
    decay_samples: PositiveFloat
    """The number of samples in which the rate falls to `floor`."""
    max_samples: PositiveFloat | None = None
    """The number of samples after which a run ends; by default `decay_samples`."""
    warmup: Fraction = 0.05
    """The share of the decay in which the rate rises (warm-up)."""
    floor: Fraction = 0.0
    """The share of the rate at which decay ends. A run that misses the target continues at it until `max_samples`."""
    global_batch_size: Count
    evaluation: Evaluation
    start: Start | None = None
    """The checkpoint; by default, a run starts from random weights."""
    ranks: Count = 1
    mode: ClipMode = "none"
    max_norm: PositiveFloat = 1.0
    buckets: Count | None = None
    """The number of gradient buckets that `bucket_mb` must result in."""
    bucket_mb: PositiveFloat | None = None
    exponent: NonNegativeFloat = 0.5
    """With B buckets, each rank clips each bucket to norm max_norm / (ranks B^exponent)."""
    technique: str | None = None
    """The technique that sums gradients, on real gloo ranks: a name and options, as in `lab train --technique`."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        batch, interval = self.global_batch_size, self.evaluation.interval_samples
        if self.model.max_positions % 2 or self.words.masked >= self.model.max_positions:
            raise ValueError("model.max_positions must be even and above words.masked; change one of them")
        if interval is None or interval % batch:
            raise ValueError(
                f"evaluation.interval_samples {interval} is not a multiple of global_batch_size {batch}; choose a "
                "multiple, because a run evaluates between steps"
            )
        if batch % self.ranks:
            raise ValueError(f"ranks {self.ranks} don't divide global_batch_size {batch}; change one")
        if self.optimizer.sharded or self.optimizer.ema_decay:
            raise ValueError("found optimizer.sharded or optimizer.ema_decay; leave out both")
        if self.technique is not None:
            kind = type(read_technique(self.technique.split()))
            if any(getattr(kind, part) is not getattr(Technique, part) for part in _NOT_OF_SUMS):
                raise ValueError(f"technique {kind.name} changes more than a sum of gradients; choose another")
        return self

    def language(self) -> Language:
        """Return the language that all runs learn."""
        model = self.model
        return Language(model.vocab_size, self.words.followers, model.max_positions, self.words.masked)

    def held_out(self) -> Batch:
        """Return the sequences on which every evaluation is done."""
        draws = np.random.default_rng(_EVALUATION_SEED)
        return self.language().shares(draws, self.words.held_out, 1)[0].batch


def read_setting(shared: dict[str, Any], changes: Mapping[str, Any]) -> LanguageSetting:
    """Return the shared settings with changes, which are named as in --set. Raises ConfigError if they are invalid."""
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
    """Train until the target, the end or `most_samples`; a seed determines weights and data for all configurations.

    Raises ConfigError if `bucket_mb` doesn't result in `buckets` buckets.
    """
    if setting.technique is not None:
        outcome: TrialOutcome = on_ranks(setting.ranks, run_on_ranks, setting, seed, most_samples)
        return outcome
    model = initial_language_model(setting, seed)
    ranks = VirtualRanks(model, setting.mode, setting.max_norm, setting.ranks, setting.bucket_mb, setting.exponent)
    buckets = len(ranks.buckets)
    if setting.buckets not in (None, buckets):
        raise ConfigError(
            f"bucket_mb {setting.bucket_mb} results in {buckets} buckets for this model, expected {setting.buckets}; "
            "choose another size"
        )
    return to_target(setting, model, ranks.reduce, seed, most_samples)


def run_on_ranks(world: World, setting: LanguageSetting, seed: int, most_samples: float) -> TrialOutcome:
    """Do the same as `run_setting` with real ranks, which sum the gradients. Collective."""
    torch.set_num_threads(1)
    model = initial_language_model(setting, seed)
    return to_target(setting, model, real_ranks(world, setting, model), seed, most_samples)


def real_ranks(world: World, setting: LanguageSetting, model: Bert) -> Reduce:
    """Return the function that clips the gradients of real ranks, and sums them by the technique."""
    order = ready_order(model, lambda: tiny_backward(lambda batch: model(batch.inputs), model.shape))
    buckets = Buckets(bucket_table(order, setting.bucket_mb))
    clip = make_clip(setting.mode, setting.max_norm, world.size, len(buckets.all))
    technique = read_technique((setting.technique or EVERY_STEP.name).split())
    exchange = Exchange()
    gradient_sum = technique.gradient_sum(exchange) or ElementSum(exchange)
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
    """Train a model on batches that are divided among ranks; interpolate samples to the target between evaluations."""
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
        began = time.process_time()  # excludes other programs
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
    """Return a model with random weights that depend on the seed, or with the weights of `start` for every seed."""
    model = Bert(setting.model.shape())
    if setting.start is None:
        model.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
    else:
        model.load_state_dict(_trained(setting.model, setting.words, setting.start))
    return model


@cache
def _trained(shape: Model, words: Words, start: Start) -> dict[str, Tensor]:
    """Train the weights of `start`. Raises ConfigError if they don't reach the accuracy that it asks for."""
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
        f"start: accuracy {start.accuracy} wasn't reached within {start.max_samples:,} samples at hidden size "
        f"{shape.hidden_size}; allow more samples, or choose another rate"
    )


@torch.no_grad()
def masked_accuracy(model: Bert, batch: Batch) -> float:
    """Return the share of masked words in a batch that the model ranks first."""
    scores = model(batch.inputs)
    return (scores.masked_lm_MV.argmax(1) == batch.masked_labels_M).float().mean().item()
