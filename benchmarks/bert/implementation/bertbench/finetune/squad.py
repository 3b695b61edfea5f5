"""Read SQuAD: questions about paragraphs, with people's answers.

In SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016 and 2018), each of data[].paragraphs[] has a context and qas[]. Each of
these has an id, a question and answers[] with text and answer_start, a place in the context that is counted in
characters. In 2.0, a question without answers is marked is_impossible.

Scores compare texts, so an answer's place only matters for training. There, a question without an answer at its stated
place is left out, as in google-research's run_squad.py.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from bertbench.common.errors import DataError
from bertbench.common.json_object import read_as


@dataclass(frozen=True)
class Answer:
    """An answer that someone marked in the context."""

    text: str
    answer_start: int | None = None
    """The place of its first character in the context, if the file gives it."""


class SquadQuestion(NamedTuple):
    """A question about a context. If there are no answers, the context doesn't contain one."""

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool = False

    @property
    def placed(self) -> tuple[Answer, ...]:
        """Return the answers that are in the context at their stated places."""
        return tuple(answer for answer in self.answers if _is_placed(answer, self.context))

    @property
    def fault(self) -> str | None:
        """Return why training can't use the question; None if it can."""
        if self.is_impossible and self.answers:
            return f"is_impossible, but has {len(self.answers)} answers"
        if not self.answers or self.placed:
            return None
        answer = self.answers[0]
        if not answer.text.strip():
            return "found an empty answer"
        if answer.answer_start is None:
            return f"found no answer_start of {answer.text!r}"
        there = self.context[max(answer.answer_start, 0) :][: len(answer.text)]
        return f"expected the answer {answer.text!r} at character {answer.answer_start} of the context, found {there!r}"


class _Question(BaseModel):
    id: str
    question: str
    answers: tuple[Answer, ...]
    is_impossible: bool = False


class _Paragraph(BaseModel):
    context: str
    qas: list[_Question]


class _Article(BaseModel):
    paragraphs: list[_Paragraph]


class _File(BaseModel):
    data: list[_Article]


def read_squad(path: Path) -> list[SquadQuestion]:
    """Return all questions of a file, in its order. Raises DataError if it can't be read, isn't SQuAD, or has none."""
    content: _File = read_as(path, _File, DataError, "give a file of SQuAD 1.1 or 2.0")
    questions = [
        SquadQuestion(asked.id, asked.question, paragraph.context, asked.answers, asked.is_impossible)
        for article in content.data
        for paragraph in article.paragraphs
        for asked in paragraph.qas
    ]
    if not questions:
        raise DataError(f"{path}: found no question; give a file of SQuAD 1.1 or 2.0")
    return questions


def trainable(path: Path, questions: Sequence[SquadQuestion]) -> list[SquadQuestion]:
    """Return the questions of a file that training can use. Raises DataError if there is none."""
    kept = [question for question in questions if question.fault is None]
    if not kept:
        raise DataError(
            f"{path}: found no question to train on; {describe_fault(questions[0])}; answer_start counts characters, "
            "not bytes"
        )
    return kept


def repeated_ids(path: Path, questions: Sequence[SquadQuestion]) -> str | None:
    """Return a warning if several questions have the same id: predictions and scores have one entry for each id."""
    times = Counter(question.id for question in questions)
    name, count = max(times.items(), key=lambda item: item[1])
    if count == 1:
        return None
    return (
        f"warning: {path}: {len(questions):,} questions have only {len(times):,} different ids; {name!r} is that of "
        f"{count:,}; scores count only the last question of each id, as SQuAD 2.0's evaluation script does"
    )


def describe_fault(question: SquadQuestion) -> str:
    """Return the fault of a question that training can't use."""
    return f"question {question.id}: {question.fault}"


def _is_placed(answer: Answer, context: str) -> bool:
    start = answer.answer_start
    return bool(answer.text.strip()) and start is not None and start >= 0 and context.startswith(answer.text, start)
