"""Turn logits into answers: the best spans of every window, then of every question, or no answer.

Shapes: N tokens of a feature, C of them in its window of the context.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertbench.common.errors import RunError
from bertbench.config.sections import Squad
from bertbench.finetune.features import Feature, text_of
from bertbench.finetune.squad import SquadQuestion


class Span(NamedTuple):
    """A possible answer: characters of the context, and the logits of its first and last token."""

    start: int
    stop: int
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """Return the sum of both logits, by which spans are ranked."""
        return self.start_logit + self.end_logit


class WindowSpans(NamedTuple):
    """The candidate answers of one window."""

    question: int
    null: Span
    """The empty answer, with the logits of [CLS]."""
    spans: list[Span]
    """The best spans, best first."""


@dataclass(frozen=True)
class Prediction:
    """The answer to one question."""

    text: str
    """The answer's text; empty for no answer."""
    null_odds: float
    """Score of the empty answer minus that of the best other answer."""
    n_best: list[dict[str, object]]
    """The best answers, each with text, probability, start_logit and end_logit, as in BERT's published code."""


def window_spans(feature: Feature, logits_N2: NDArray[np.floating], options: Squad) -> WindowSpans:
    """Return the n best spans of a window, among all spans of at most max_answer_length tokens.

    A span begins only where this window shows more context than any other window.
    """
    logits_C2 = logits_N2[feature.first : -1].astype(np.float64)
    longest = options.max_answer_length
    starts_C = np.where(feature.widest_C, logits_C2[:, 0], -np.inf)
    ends = np.concatenate((logits_C2[:, 1], np.full(longest - 1, -np.inf)))
    scores = (starts_C[:, None] + np.lib.stride_tricks.sliding_window_view(ends, longest)).ravel()
    count = min(options.n_best, scores.size)
    best = np.argpartition(-scores, count - 1)[:count]
    best = best[np.argsort(-scores[best], kind="stable")]
    firsts, more = np.divmod(best[np.isfinite(scores[best])], longest)
    starts, stops = feature.offsets_C2.T.tolist()
    start_logits, end_logits = logits_C2.T.tolist()
    spans = [
        Span(starts[first], stops[last], start_logits[first], end_logits[last])
        for first, last in zip(firsts.tolist(), (firsts + more).tolist(), strict=True)
    ]
    return WindowSpans(feature.question, Span(0, 0, *logits_N2[0].tolist()), spans)


def predict(
    questions: Sequence[SquadQuestion], windows: Iterable[WindowSpans], options: Squad, may_abstain: bool
) -> list[Prediction]:
    """Answer every question from all its windows; empty answers are given only if `may_abstain`."""
    of_question: list[list[WindowSpans]] = [[] for _ in questions]
    for window in windows:
        of_question[window.question].append(window)
    return [
        _predict(question.context, seen, options, may_abstain)
        for question, seen in zip(questions, of_question, strict=True)
    ]


def _predict(context: str, windows: list[WindowSpans], options: Squad, may_abstain: bool) -> Prediction:
    if not windows:  # a context without a token holds no answer
        return Prediction("", 0.0, [{"text": "", "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}])
    texts: dict[str, Span] = {}
    for span in sorted((span for window in windows for span in window.spans), key=lambda span: -span.score):
        texts.setdefault(text_of(context, span.start, span.stop), span)
    ranked = list(texts.items())[: options.n_best]
    null = min((window.null for window in windows), key=lambda span: span.score)
    if not ranked:  # every token may begin an answer in some window, unless its logits aren't numbers
        raise RunError(
            "no logit of a question is finite: the fine-tuned weights have diverged; lower optimizer.learning_rate"
        )
    best_text, best = ranked[0]
    odds = null.score - best.score
    if may_abstain:
        ranked = sorted([*ranked, ("", null)], key=lambda item: -item[1].score)
    highest = ranked[0][1].score
    weights = [math.exp(span.score - highest) for _, span in ranked]
    n_best: list[dict[str, object]] = [
        {
            "text": text,
            "probability": weight / sum(weights),
            "start_logit": span.start_logit,
            "end_logit": span.end_logit,
        }
        for (text, span), weight in zip(ranked, weights, strict=True)
    ]
    abstains = may_abstain and odds > options.null_score_threshold
    return Prediction("" if abstains else best_text, odds, n_best)
