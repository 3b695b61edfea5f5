"""`bertbench finetune score`: compute exact match and F1 of predictions for SQuAD questions."""

import argparse

from bertbench.commands import add_path, emit, say
from bertbench.common.errors import DataError
from bertbench.common.json_object import read_as
from bertbench.finetune.score import summary
from bertbench.finetune.squad import read_squad


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the questions and the predictions."""
    add_path(parser, "--dev", "FILE", "questions in SQuAD 1.1 or 2.0 format", required=True)
    add_path(
        parser,
        "--predictions",
        "FILE",
        'JSON object {question id: answer}, "" for no answer; a question without a prediction counts as wrong',
        required=True,
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the scores, in percent."""
    questions = read_squad(arguments.dev)
    remedy = "give {question id: answer}, for no answer an empty one"
    predictions: dict[str, str] = read_as(arguments.predictions, dict[str, str], DataError, remedy)
    if missing := {question.id for question in questions} - predictions.keys():
        say(f"warning: {arguments.predictions}: no prediction for {len(missing):,} questions, which count as wrong")
    found = summary(questions, predictions)
    emit(arguments.json, found, *table(found))
    return 0


def table(found: dict[str, float]) -> list[str]:
    """Return the scores as lines of text."""
    groups = {"": "", "HasAns_": "with an answer: ", "NoAns_": "without an answer: "}
    return [
        f"{name}exact {found[f'{group}exact']:.2f} %, F1 {found[f'{group}f1']:.2f} % of "
        f"{found[f'{group}total']:,.0f} questions"
        for group, name in groups.items()
        if f"{group}total" in found
    ]
