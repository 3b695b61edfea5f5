"""Answer and score the development questions; ranks share their windows."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from bertbench.config import System
from bertbench.distributed.world import World
from bertbench.finetune.answers import Prediction, WindowSpans, predict, window_spans
from bertbench.finetune.batches import longest_first, span_batch
from bertbench.finetune.features import Feature
from bertbench.finetune.score import Marks, best_threshold, by_id, marks, summary
from bertbench.finetune.squad import Question
from bertbench.finetune.step import logits_of, span_losses
from bertbench.model.span import SpanBert


class Evaluated(NamedTuple):
    """A model's answers and their scores; the same on every rank."""

    predictions: dict[str, Prediction]
    """By question id."""
    scores: dict[str, float]
    """In percent, under the names of SQuAD 2.0's evaluation."""
    loss: float
    """Mean over all windows."""

    def text(self) -> str:
        """Return it in a line."""
        exact, f1 = self.scores["exact"], self.scores["f1"]
        return f"exact {exact:.2f} %, F1 {f1:.2f} %, validation loss {self.loss:.4f}"


class DevQuestions:
    """The development questions; `evaluate` answers them all."""

    def __init__(
        self, system: System, world: World, questions: Sequence[Question], features: list[Feature], may_abstain: bool
    ) -> None:
        self._world, self._precision = world, system.precision.compute
        self._options = system.finetune
        self._questions, self._features, self._may_abstain = questions, features, may_abstain
        ids = longest_first(features, np.arange(len(features)))[world.rank :: world.size]
        size = system.evaluation.batch_size
        self._batches = [ids[start : start + size] for start in range(0, len(ids), size)]

    @torch.no_grad()
    def evaluate(self, model: SpanBert) -> Evaluated:
        """Answer every question once; every rank must call it."""
        model.eval()
        windows: list[WindowSpans] = []
        loss = torch.zeros((), device=self._world.device)
        for ids in self._batches:
            self._world.watchdog.goes_on()
            features = [self._features[number] for number in ids]
            batch = span_batch(features).to(self._world.device)
            logits_T2 = logits_of(model, batch, self._precision, self._world.device)
            loss += span_losses(logits_T2, batch).sum()
            parts = logits_T2.cpu().split([feature.length for feature in features])
            windows += [
                window_spans(feature, part.numpy(), self._options)
                for feature, part in zip(features, parts, strict=True)
            ]
        model.train()
        mean_loss = self._world.sum(loss).item() / len(self._features)
        everyone = chain.from_iterable(self._world.from_all(windows))
        answered = predict(self._questions, everyone, self._options, self._may_abstain)
        predictions = {question.id: one for question, one in zip(self._questions, answered, strict=True)}
        scores = summary(self._questions, {name: one.text for name, one in predictions.items()})
        return Evaluated(predictions, scores | self._best(predictions), mean_loss)

    def _best(self, predictions: dict[str, Prediction]) -> dict[str, float]:
        """Return the best thresholds on null odds in hindsight, and their scores."""
        if not self._may_abstain:
            return {}
        asked = by_id(self._questions)
        odds = [predictions[name].null_odds for name in asked]
        earned = [marks(question, predictions[name].best_text) for name, question in asked.items()]
        answerable = [bool(question.answers) for question in asked.values()]
        best = {}
        for name in Marks._fields:
            of_kind = [getattr(one, name) for one in earned]
            best[f"best_{name}"], best[f"best_{name}_thresh"] = best_threshold(of_kind, odds, answerable)
        return best
