"""Define what a model learns: its initial weights, its loss, and samples for the warm-up.

A trainer gets these from its task. The step from the loss to updated weights belongs to the trainer and is the same for
all tasks. `PreTraining` is one task; `finetune/span_task.py` has another.
Shapes: as in model/bert.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bertbench.common.paths import data_path
from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.loading.batch import Batch, synthetic_of_lengths
from bertbench.loading.filler import fill_of
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.bert import Bert, with_memory_for
from bertbench.model.loss import Scores
from bertbench.model.mimetic import imitate_training
from bertbench.model.options import PrecisionName

if TYPE_CHECKING:
    from bertbench.parallel.stage import Stage


class Task(ABC):
    """A model with its heads, and the loss for their outputs."""

    heads: tuple[str, ...]
    """The modules, other than layers, that the last stage of a split model takes out of the whole model."""

    @abstractmethod
    def initial_model(self, system: System, seed: int, held: Iterable[str] | None = None) -> Bert:
        """Return the whole model before its first step, in main memory; the same on every rank.

        If `held` is given, only those modules have memory; the others are torch's meta tensors.
        """

    @abstractmethod
    def gathering_model(self, system: System, seed: int, leads: bool) -> Bert:
        """Return the whole model. Rank 0, which `leads`, fills it with trained weights; elsewhere it has no memory."""

    @abstractmethod
    def stage(self, model: Bert, number: int, stages: int, precision: PrecisionName) -> "Stage":
        """Take stage `number` of `stages` out of a whole model."""

    @abstractmethod
    def loss(self, model: Bert, part: Part, batch: Batch) -> Tensor:
        """Return the weighted loss of a part by the whole model; the losses of all parts and ranks add up."""

    @abstractmethod
    def sum_of_outputs(self, outputs: Any) -> Tensor:
        """Return the sum of all outputs, whose backward pass reaches every trained weight."""

    @abstractmethod
    def synthetic_part(self, system: System, lengths_S: Integers, generator: torch.Generator) -> LoadedPart:
        """Return one pass's samples for the warm-up, in main memory: S sequences of these lengths, longest first."""


class PreTraining(Task):
    """Predict masked tokens, and whether a sentence follows another (Devlin et al. 2018)."""

    heads = ("embeddings.word", "masked_lm", "pooler", "next_sentence")

    def initial_model(self, system: System, seed: int, held: Iterable[str] | None = None) -> Bert:
        """Return the model that the function `initial_model` makes; see `Task`."""
        return initial_model(system, seed, held)

    def gathering_model(self, system: System, seed: int, leads: bool) -> Bert:
        """Return a model with undefined weights, because all of them will be replaced by trained ones; see `Task`."""
        del seed
        with torch.device("meta"):
            model = Bert(system.model.shape())
        return model.to_empty(device="cpu") if leads else model

    def stage(self, model: Bert, number: int, stages: int, precision: PrecisionName) -> "Stage":
        """Return a stage; the last one has both pre-training heads; see `Task`."""
        from bertbench.parallel.stage import Stage  # noqa: PLC0415 - for split models only

        return Stage(model, number, stages, precision)

    def loss(self, model: Bert, part: Part, batch: Batch) -> Tensor:
        """Return the weighted cross-entropies of masked tokens and sentence pairs; see `Task`."""
        sums = model.loss_sums(batch.inputs, batch.labels)
        return sums.weighted(part.masked_lm_weight, part.next_sentence_weight)

    def sum_of_outputs(self, outputs: Scores) -> Tensor:
        """Return the sum of both heads' scores; see `Task`."""
        return outputs.masked_lm_MV.sum() + outputs.next_sentence_S2.sum()

    def synthetic_part(self, system: System, lengths_S: Integers, generator: torch.Generator) -> LoadedPart:
        """Return random tokens, every seventh of them masked, filled up to a size like the run's batches."""
        batch = synthetic_of_lengths(lengths_S, system.model.vocab_size, generator)
        part = Part(
            ids=np.arange(len(lengths_S)),
            masked_lm_weight=1 / len(batch.masked_at_M),
            next_sentence_weight=1 / len(lengths_S),
        )
        return LoadedPart(part, fill_of(system)(batch))


PRE_TRAINING = PreTraining()


def initial_model(system: System, seed: int, held: Iterable[str] | None = None) -> Bert:
    """Return the whole model with the weights of the system's checkpoint, or with weights drawn from the seed.

    If `held` is given, only those modules have memory; their weights are the same as in the whole model. Raises
    CheckpointError if the checkpoint can't be read.
    """
    shape = system.model.shape()
    model = Bert(shape) if held is None else with_memory_for(lambda: Bert(shape), held)
    if system.model.checkpoint is None:
        model.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
        if system.model.initial_weights == "mimetic":
            imitate_training(model)
    else:
        from bertbench.checkpoint.run_weights import open_weights  # noqa: PLC0415 - only a run with a checkpoint reads one

        open_weights(data_path(system.model.checkpoint)).put_into(model)
    return model
