"""Make questions in the format of SQuAD 2.0 from our own word lists, for runs without SQuAD's files.

A context states a few facts about a person in random order, one in each sentence. A question asks for one fact. If the
context doesn't state it, the question has no answer. From a thousand questions, a small model learns which words answer
which question.
"""

import json
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bertbench.data.text.vocabulary import Vocabulary

_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jo", "Kim", "Lea")


class _Topic(NamedTuple):
    """One kind of fact that a context may state."""

    sentence: str
    question: str
    answers: tuple[str, ...]


_TOPICS = (
    _Topic("{name} lives in {answer}.", "Where does {name} live?", ("Oslo", "Lima", "Rome", "Cairo", "Delhi")),
    _Topic("The coat of {name} is {answer}.", "What colour is the coat?", ("red", "blue", "green", "grey", "white")),
    _Topic("At noon {name} eats {answer}.", "What does {name} eat?", ("soup", "rice", "bread", "plums", "fish")),
    _Topic("{name} works as a {answer}.", "What is the job of {name}?", ("baker", "nurse", "pilot", "smith", "cook")),
    _Topic("By the door sits a {answer}.", "Which animal sits there?", ("cat", "dog", "goat", "hen", "fox")),
)
_ASIDES = ("It is late in the year and the days are short.", "The lamps are lit.", "The road to the hills is long.")


def write_questions(folder: Path, seed: int, train: int = 960, dev: int = 160) -> tuple[Path, Path, Path]:
    """Write training questions, questions to answer, and a vocabulary of their words; return the three paths."""
    random = Random(seed)
    paths = []
    texts: list[str] = []
    for name, count in (("train", train), ("dev", dev)):
        paragraphs = [_paragraph(random, f"{name}_{number}") for number in range(count)]
        path = folder / f"{name}.json"
        path.write_text(json.dumps({"version": "made", "data": [{"title": name, "paragraphs": paragraphs}]}))
        paths.append(path)
        texts += [paragraph["context"] for paragraph in paragraphs]
        texts += [paragraph["qas"][0]["question"] for paragraph in paragraphs]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text(Vocabulary.train(texts, 400).text, encoding="utf-8")
    return paths[0], paths[1], vocabulary


def _paragraph(random: Random, name: str) -> dict[str, Any]:
    """Return a context with one question; one in three questions has no answer."""
    person = random.choice(_NAMES)
    topics = random.sample(_TOPICS, 4)
    asked, *others = topics
    answer = random.choice(asked.answers)
    has_answer = random.random() < 2 / 3
    sentences = [topic.sentence.format(name=person, answer=random.choice(topic.answers)) for topic in others]
    if has_answer:
        sentences.append(asked.sentence.format(name=person, answer=answer))
    sentences += random.sample(_ASIDES, random.randint(0, len(_ASIDES)))
    random.shuffle(sentences)
    context = " ".join(sentences)
    answers = [{"text": answer, "answer_start": context.index(f" {answer}.") + 1}] if has_answer else []
    question = {
        "id": name,
        "question": asked.question.format(name=person),
        "answers": answers,
        "is_impossible": not has_answer,
    }
    return {"context": context, "qas": [question]}
