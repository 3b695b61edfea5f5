"""Define what fine-tuning learns: the first and the last token of an answer. Pre-training's trainers take the steps.

Shapes: as in model/span.py.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bertbench.common.seeding import derive
from bertbench.config import System
from bertbench.data.store.columns import Integers
from bertbench.finetune.batches import SpanBatch, loaded
from bertbench.finetune.span_loss import weighted_span_loss
from bertbench.finetune.squad_inputs import Inputs
from bertbench.loading.batch import Batch, synthetic_of_lengths
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.model.bert import Bert, with_memory_for
from bertbench.model.options import PrecisionName
from bertbench.model.span import HEAD, SpanBert
from bertbench.training.task import Task

if TYPE_CHECKING:
    from bertbench.parallel.stage import Stage


class SpanTask(Task):
    """Find an answer in its context, from the weights that the inputs name; pre-training's heads aren't trained."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    heads = (HEAD,)

    def initial_model(self, system: System, seed: int, held: Iterable[str] | None = None) -> SpanBert:
        """Return the model before the first step; weights that no file gives are drawn from the seed. See `Task`.

        Raises CheckpointError if the weights can't be read.
        """
        shape = system.model.shape()
        model = SpanBert(shape) if held is None else with_memory_for(lambda: SpanBert(shape), held)
        model.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
        model.initialize_head(torch.Generator().manual_seed(derive(seed, HEAD)))
        weights = self._inputs.weights
        if weights is not None:
            weights.check_fits(model.shape)
            weights.copy_into(model.state_dict())  # a file has a span head if its model was fine-tuned
        return model

    def gathering_model(self, system: System, seed: int, leads: bool) -> Bert:
        """Return the initial model, since pre-training's heads keep their weights; see `Task`."""
        if leads:
            return self.initial_model(system, seed)
        with torch.device("meta"):
            return SpanBert(system.model.shape())

    def stage(self, model: Bert, number: int, stages: int, precision: PrecisionName) -> "Stage":
        """Return a stage of the model; the last stage has the span head. See `Task`."""
        from bertbench.finetune.span_stage import SpanStage  # noqa: PLC0415 - only split models need it

        return SpanStage(model, number, stages, precision)

    def loss(self, model: Bert, part: Part, batch: Batch) -> Tensor:
        """Return the weighted losses of the batch's answers; see `Task`."""
        del part
        return weighted_span_loss(model(batch.inputs), batch)

    def sum_of_outputs(self, outputs: Any) -> Tensor:
        """Return the sum of all logits; see `Task`."""
        total: Tensor = outputs.sum()
        return total

    def synthetic_part(self, system: System, lengths_S: Integers, generator: torch.Generator) -> LoadedPart:
        """Return random tokens; the answer in each sequence is its first token."""
        count = len(lengths_S)
        batch = synthetic_of_lengths(lengths_S, system.model.vocab_size, generator)
        first_S = batch.sequences.cu_seqlens_S1[:-1].long()
        return loaded(np.arange(count), SpanBatch.of(batch, first_S, first_S, 1 / count))
