"""Answer the development questions and score the answers; data-parallel ranks share the windows."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.finetune.answers import Prediction, WindowSpans, predict, window_spans
from bertbench.finetune.batches import ids_longest_first, span_batch
from bertbench.finetune.features import Feature
from bertbench.finetune.score import scores_by_group
from bertbench.finetune.span_loss import span_losses
from bertbench.finetune.squad_inputs import Inputs

if TYPE_CHECKING:
    from bertbench.training.layout_trainer import LayoutTrainer
    from bertbench.training.whole_trainer import WholeTrainer


class Evaluated(NamedTuple):
    """A model's answers and their scores; the same on every rank."""

    predictions: dict[str, Prediction]
    """The predictions by question id."""
    scores: dict[str, float]
    """The scores in percent, under the names of SQuAD 2.0's evaluation."""
    loss: float | None
    """Mean over all windows whose answer has a known place; None if there are none."""

    @property
    def exact(self) -> float:
        """Return exact match over all questions, in percent."""
        return self.scores["exact"]

    @property
    def f1(self) -> float:
        """Return F1 over all questions, in percent."""
        return self.scores["f1"]

    def text(self) -> str:
        """Return scores and loss as text for people."""
        loss = "unknown" if self.loss is None else f"{self.loss:.4f}"
        return f"exact {self.exact:.2f} %, F1 {self.f1:.2f} %, validation loss {loss}"


@torch.no_grad()
def evaluate_spans(
    trainer: "WholeTrainer | LayoutTrainer",
    system: System,
    world: World,
    inputs: Inputs,
    features: Sequence[Feature],
) -> Evaluated:
    """Answer every development question once, from its features; every rank must call it."""
    model = trainer.model
    model.eval()
    options = system.squad
    size = system.evaluation.batch_size
    place = system.layout.coordinate(world.rank)
    ranks = system.layout.data
    order = ids_longest_first(features, np.arange(len(features)))
    mine = order[place.data :: ranks]
    # ranks that gather each other's weights must run the same number of batches; extra ones don't count
    most_windows = math.ceil(len(features) / ranks)
    windows: list[WindowSpans] = []
    loss = torch.zeros((), device=world.device)
    labelled = sum(feature.is_labelled for feature in features)
    for start in range(0, most_windows, size):
        world.watchdog.goes_on()
        ids = mine[start : start + size]
        chosen = [features[number] for number in (ids if ids.size else order[-1:])]
        batch = span_batch(chosen).to(world.device)
        outputs = trainer.outputs(batch)
        if outputs is None or place.tensor > 0 or not ids.size:  # another rank counts it, or it is extra
            continue
        logits_T2 = outputs[: len(batch.tokens_T)].float()  # without the tokens that fill the ranks' shares
        counts_S = torch.tensor([feature.is_labelled for feature in chosen], device=world.device)
        loss += span_losses(logits_T2, batch)[counts_S].sum()
        parts = logits_T2.cpu().split([feature.length for feature in chosen])
        windows += [window_spans(feature, part.numpy(), options) for feature, part in zip(chosen, parts, strict=True)]
    model.train()
    total_loss = world.sum(loss).item()
    mean_loss = total_loss / labelled if labelled else None
    everyone = chain.from_iterable(world.from_all(windows))
    answered = predict(inputs.dev, everyone, options, inputs.may_abstain)
    predictions = {question.id: prediction for question, prediction in zip(inputs.dev, answered, strict=True)}
    scores_by_name = scores_by_group(inputs.dev, {name: prediction.text for name, prediction in predictions.items()})
    return Evaluated(predictions, scores_by_name, mean_loss)
