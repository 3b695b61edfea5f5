"""Answers from logits, worked out by hand or found by trying all spans."""

import math

import numpy as np
import pytest

from bertbench.common.errors import RunError
from bertbench.config.sections import Squad
from bertbench.finetune.answers import Span, WindowSpans, predict, window_spans
from bertbench.finetune.features import Feature
from bertbench.finetune.squad import SquadQuestion

CONTEXT = "ab cd ef gh ij"
OPTIONS = Squad(max_answer_length=3, n_best=4, null_score_threshold=0.0)


def feature(widest: list[bool]) -> Feature:
    """[CLS] question [SEP], five words of the context, [SEP]."""
    offsets = np.array([[3 * word, 3 * word + 2] for word in range(5)], np.int32)
    return Feature(0, np.zeros(9, np.int32), 3, offsets, np.array(widest), 0, 0)


def test_the_best_spans_of_a_window_are_the_best_of_all_allowed_spans() -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        logits, widest = random.normal(size=(9, 2)).astype(np.float32), (random.random(5) < 0.7).tolist()
        allowed = [
            (float(logits[3 + first, 0]) + float(logits[3 + last, 1]), 3 * first, 3 * last + 2)
            for first in range(5)
            for last in range(first, min(first + 3, 5))
            if widest[first]
        ]
        expected = sorted(allowed, reverse=True)[:4]
        found = window_spans(feature(widest), logits, OPTIONS)
        assert [(span.start, span.stop) for span in found.spans] == [(start, stop) for _, start, stop in expected]
        assert [span.score for span in found.spans] == pytest.approx([value for value, _, _ in expected])
        assert (found.null.start_logit, found.null.end_logit) == tuple(logits[0].tolist())


def window(null: float, *spans: tuple[int, int, float]) -> WindowSpans:
    return WindowSpans(0, Span(0, 0, null, 0.0), [Span(start, stop, score, 0.0) for start, stop, score in spans])


def answer(*windows: WindowSpans, may_abstain: bool = True, threshold: float = 0.0) -> tuple[str, float, list[object]]:
    options = Squad(max_answer_length=3, n_best=2, null_score_threshold=threshold)
    (one,) = predict([SquadQuestion("one", "?", CONTEXT, ())], windows, options, may_abstain)
    assert sum(float(str(entry["probability"])) for entry in one.n_best) == pytest.approx(1)
    return one.text, one.null_odds, [entry["text"] for entry in one.n_best]


def test_a_question_is_left_unanswered_if_every_window_says_so() -> None:
    sure, unsure = window(7.0, (0, 2, 1.0)), window(2.0, (3, 5, 4.0), (6, 8, 3.0))
    assert answer(sure) == ("", 6.0, ["", "ab"])
    assert answer(sure, unsure) == ("cd", -2.0, ["cd", "ef", ""]), "the least of the windows' null scores holds"
    assert answer(sure, unsure, threshold=-3.0) == ("", -2.0, ["cd", "ef", ""])
    assert answer(sure, threshold=6.0) == ("ab", 6.0, ["", "ab"]), "more than the threshold, not as much"


def test_if_training_has_no_unanswerable_questions_all_are_answered() -> None:
    assert answer(window(7.0, (0, 2, 1.0)), may_abstain=False) == ("ab", 6.0, ["ab"])


def test_the_same_text_is_one_answer_with_its_best_score_and_probabilities_are_a_softmax_over_answers() -> None:
    windows = [window(0.0, (0, 2, 1.0), (3, 5, 4.0), (6, 8, 3.0))]
    (one,) = predict([SquadQuestion("one", "?", "ab ab cd", ())], windows, OPTIONS, False)
    share = math.exp(4) / (math.exp(4) + math.exp(3))
    assert one.n_best[0] == {"text": "ab", "probability": pytest.approx(share), "start_logit": 4.0, "end_logit": 0.0}
    assert [answer["text"] for answer in one.n_best] == ["ab", "cd"]


def test_logits_that_are_not_numbers_are_an_error_of_the_run() -> None:
    diverged = window_spans(feature([True] * 5), np.full((9, 2), np.nan, np.float32), OPTIONS)
    with pytest.raises(RunError, match="diverged"):
        answer(diverged)
