"""Compute exact match and F1 of SQuAD, in percent.

Definitions: Rajpurkar et al. 2016, section 6.1, and 2018 for questions without answers. Two texts match if they are
equal in lower case, without punctuation, without the words a, an and the, and with single spaces. F1 is the harmonic
mean of precision and recall of the remaining words, counted with repetitions. The gold answer with the highest score
counts; gold answers without remaining words don't. The right answer to a question without answers is empty.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bertbench.finetune.squad import SquadQuestion

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Marks(NamedTuple):
    """The scores of one prediction, from 0 to 1."""

    exact: float
    f1: float


def normalized_answer(text: str) -> str:
    """Return the text in the form in which answers are compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def marks(question: SquadQuestion, prediction: str) -> Marks:
    """Return the scores of a question's prediction."""
    golds = [text for answer in question.answers if (text := normalized_answer(answer.text))] or [""]
    predicted = normalized_answer(prediction)
    return Marks(
        exact=max(float(gold == predicted) for gold in golds),
        f1=max(_f1(gold, predicted) for gold in golds),
    )


def _f1(gold: str, predicted: str) -> float:
    gold_words = gold.split()
    predicted_words = predicted.split()
    if not gold_words or not predicted_words:
        return float(gold_words == predicted_words)
    common = (Counter(gold_words) & Counter(predicted_words)).total()
    # 2 P R / (P + R) with P = common / predicted and R = common / gold
    return 2 * common / (len(gold_words) + len(predicted_words))


def score(questions: Iterable[SquadQuestion], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return exact match and F1 in percent, and the number of questions.

    A question without a prediction counts as wrong, even an unanswerable one. Of several questions with one id, only
    the last one counts, as in SQuAD 2.0's evaluation script.
    """
    earned = []
    for question in _last_of_each_id(questions):
        answered = question.id in predictions
        earned.append(marks(question, predictions[question.id]) if answered else Marks(0.0, 0.0))
    return {
        "exact": 100 * sum(mark.exact for mark in earned) / len(earned),
        "f1": 100 * sum(mark.f1 for mark in earned) / len(earned),
        "total": len(earned),
    }


def scores_by_group(questions: Sequence[SquadQuestion], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return the scores of all, of answerable and of unanswerable questions, under SQuAD 2.0's names."""
    scores = score(questions, predictions)
    for name, answerable in (("HasAns", True), ("NoAns", False)):
        if group := [question for question in _last_of_each_id(questions) if bool(question.answers) == answerable]:
            scores |= {f"{name}_{key}": value for key, value in score(group, predictions).items()}
    return scores


def _last_of_each_id(questions: Iterable[SquadQuestion]) -> list[SquadQuestion]:
    return list({question.id: question for question in questions}.values())
