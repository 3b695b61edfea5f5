"""Answer and score the development questions; ranks share their windows."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.finetune.answers import Prediction, WindowSpans, predict, window_spans
from bertbench.finetune.batches import ids_longest_first, span_batch
from bertbench.finetune.features import Feature
from bertbench.finetune.score import scores_by_group
from bertbench.finetune.span_trainer import logits_of, span_losses
from bertbench.finetune.squad_inputs import Inputs
from bertbench.model.span import SpanBert


class Evaluated(NamedTuple):
    """A model's answers and their scores; the same on every rank."""

    predictions: dict[str, Prediction]
    """By question id."""
    scores: dict[str, float]
    """In percent, under the names of SQuAD 2.0's evaluation."""
    loss: float | None
    """Mean over all windows whose answer has a known place; None without any."""


@torch.no_grad()
def evaluate_spans(
    model: SpanBert, system: System, world: World, inputs: Inputs, features: Sequence[Feature]
) -> Evaluated:
    """Answer every development question once, from its features; every rank must call it."""
    model.eval()
    options = system.finetune
    size = system.evaluation.batch_size
    mine = ids_longest_first(features, np.arange(len(features)))[world.rank :: world.size]
    windows: list[WindowSpans] = []
    loss = torch.zeros((), device=world.device)
    labelled = sum(feature.is_labelled for feature in features)
    for start in range(0, len(mine), size):
        world.watchdog.goes_on()
        chosen = [features[number] for number in mine[start : start + size]]
        batch = span_batch(chosen).to(world.device)
        logits_T2 = logits_of(model, batch, system.precision.compute, world.device)
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
    scores = scores_by_group(inputs.dev, {name: prediction.text for name, prediction in predictions.items()})
    return Evaluated(predictions, scores, mean_loss)
