"""Define the trainer interface of the timed run: a step, and the state that a snapshot saves.

`ddp_trainer.py` and `graph_trainer.py` hold the whole model on every rank, `layout_trainer.py` a part of it. `step` is
all of the timed work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import nn

from bertbench.common.paths import weights_file
from bertbench.common.seeding import derive
from bertbench.loading.batch import Batch, synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.model.bert import Bert
from bertbench.model.scores import Scores
from bertbench.model.shape import BertShape
from bertbench.optim.traffic import Communication
from bertbench.results.metrics import StepReport

if TYPE_CHECKING:  # as in ddp_trainer.py
    from bertbench.config import System


class Trainer(Protocol):
    """The model of one rank, or its part of it, with its optimizer, built and warmed up."""

    @property
    def model(self) -> nn.Module:
        """Return the module whose parameters this rank updates."""

    def communication(self) -> Communication:
        """Return how gradients are sent and applied, for the run's output and records."""

    def step(self, number: int, parts: list[LoadedPart]) -> StepReport:
        """Take step `number`, counted from 0, with this rank's samples."""

    def averaged(self) -> AbstractContextManager[None]:
        """Replace the weights by the average inside the context, if evaluations use one. Collective."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors in memory on which later steps depend: weights, moments, the loss scale."""

    def resume(self, steps: int) -> None:
        """Continue as after `steps` steps, once their `state` is restored."""

    def whole(self) -> Bert | None:
        """Return the model with all its weights on rank 0, None on the others. Collective."""

    def close(self) -> None:
        """Release hooks and sums before the process group ends."""


def tiny_backward(score: Callable[[Batch], Scores], shape: BertShape) -> None:
    """Run a backward pass on a few tokens, to find the order of its gradients."""
    scores = score(synthetic(1, min(8, shape.max_positions), shape.vocab_size, torch.Generator().manual_seed(1)))
    (scores.masked_lm_MV.sum() + scores.next_sentence_S2.sum()).backward()


def initial_model(system: System, seed: int) -> Bert:
    """Return the whole model with the system's checkpoint, or with weights drawn from the seed.

    Raises CheckpointError if the checkpoint can't be read.
    """
    model = Bert(system.model.shape())
    if system.model.checkpoint is None:
        model.initialize(torch.Generator().manual_seed(derive(seed, "weights")))
    else:
        from bertbench.checkpoint.weights import open_weights  # noqa: PLC0415 - pydantic, see above

        open_weights(weights_file(system.model.checkpoint)).put_into(model)
    return model
