"""Define what studies of the made-up language (study/language.py) have in common."""

from typing import Self

import numpy as np
import torch
from pydantic import model_validator

from bertbench.common.section import Count, Section
from bertbench.common.seeding import derive
from bertbench.config.optimizer import OptimizerSettings
from bertbench.config.sections import Evaluation, Model, Schedule
from bertbench.loading.batch import Batch
from bertbench.model.attention import plain_attention
from bertbench.model.bert import Bert
from lab.study.language import Language

_EVALUATION_SEED = 0  # the same for every run, so that all are scored on the same samples


class Words(Section):
    """The language; the model's vocabulary and positions fix its words and lengths."""

    followers: Count
    """Words that may follow a word."""
    masked: Count
    """Masked words of a sequence."""
    held_out: Count
    """Sequences of the evaluation."""


class LanguageModelStudy(Section):
    """A model that learns the language."""

    question: str
    model: Model
    words: Words

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.model.max_positions % 2 or self.words.masked >= self.model.max_positions:
            raise ValueError("model.max_positions must be even and above words.masked; change one of them")
        return self

    def language(self) -> Language:
        """Return the language that all runs learn."""
        model = self.model
        return Language(model.vocab_size, self.words.followers, model.max_positions, self.words.masked)

    def held_out(self) -> Batch:
        """Return the sequences that every evaluation reads."""
        draws = np.random.default_rng(_EVALUATION_SEED)
        return self.language().shares(draws, self.words.held_out, 1)[0].batch


class LanguageStudy(LanguageModelStudy):
    """A study with one schedule and batch for all arms."""

    optimizer: OptimizerSettings
    schedule: Schedule
    global_batch_size: Count
    evaluation: Evaluation
    """`interval_samples` must be a multiple of the global batch."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        interval = self.evaluation.interval_samples
        if interval is None or interval % self.global_batch_size:
            raise ValueError(
                f"evaluation.interval_samples {interval} is not a multiple of global_batch_size "
                f"{self.global_batch_size}; choose one, because a run evaluates between steps"
            )
        if self.optimizer.sharded or self.optimizer.ema_decay:
            raise ValueError("virtual ranks support neither optimizer.sharded nor optimizer.ema_decay; leave them out")
        return self


def initial_model(model: Model, seed: int) -> Bert:
    """Return a model of random weights that the seed fixes."""
    bert = Bert(model.shape(), attention=plain_attention)
    bert.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
    return bert


@torch.no_grad()
def masked_accuracy(model: Bert, batch: Batch) -> float:
    """Return the share of a batch's masked words that the model ranks first."""
    scores = model(*batch.inputs)
    return (scores.masked_lm_MV.argmax(1) == batch.masked_labels_M).float().mean().item()
