"""Read SQuAD: questions about paragraphs, with people's answers.

The format of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016 and 2018): data[].paragraphs[] have a context and qas[], each
with id, question and answers[] of text and answer_start, a place in the context counted in characters. In 2.0 a
question without answers is marked is_impossible.
"""

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
    answer_start: int
    """Its first character in the context."""


class Question(NamedTuple):
    """A question about a context; without answers, the context has none."""

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...]


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


def read_squad(path: Path, check_places: bool = True) -> list[Question]:
    """Return all questions of a file, in its order.

    Raises DataError if it can't be read, isn't SQuAD, holds no question, or has an answer to a question marked
    impossible; with `check_places` also if an answer is not at its place in the context.
    """
    content: _File = read_as(path, _File, DataError, "give a file of SQuAD 1.1 or 2.0")
    questions = []
    for a, article in enumerate(content.data):
        for p, paragraph in enumerate(article.paragraphs):
            for q, asked in enumerate(paragraph.qas):
                question = Question(asked.id, asked.question, paragraph.context, asked.answers)
                place = f"{path}: data[{a}].paragraphs[{p}].qas[{q}] (id {asked.id})"
                if asked.is_impossible and asked.answers:
                    raise DataError(
                        f"{place}: is_impossible, but has {len(asked.answers)} answers; correct one of them"
                    )
                if check_places:
                    _check_places(place, question)
                questions.append(question)
    if not questions:
        raise DataError(f"{path}: found no question; give a file of SQuAD 1.1 or 2.0")
    return questions


def _check_places(place: str, question: Question) -> None:
    for answer in question.answers:
        if not answer.text.strip():
            raise DataError(f"{place}: found an empty answer; remove it, and mark a question without any is_impossible")
        start = answer.answer_start
        if start < 0 or not question.context.startswith(answer.text, start):
            there = question.context[max(start, 0) :][: len(answer.text)]
            raise DataError(
                f"{place}: expected the answer {answer.text!r} at character {start} of the context, found "
                f"{there!r}; correct answer_start, which counts characters, not bytes"
            )
