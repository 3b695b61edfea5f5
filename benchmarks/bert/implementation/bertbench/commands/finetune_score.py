"""`bertbench finetune score`: compute exact match and F1 of predictions for SQuAD questions."""

import argparse

from bertbench.commands import add_path, emit, say
from bertbench.finetune.score import read_predictions, summary
from bertbench.finetune.squad import read_squad

_SHOWN = 5


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
    questions, predictions = read_squad(arguments.dev, check_places=False), read_predictions(arguments.predictions)
    known = {question.id for question in questions}
    _warn(f"{arguments.predictions}: no prediction, counted as wrong, for", known - predictions.keys())
    _warn(f"{arguments.predictions}: ignored, since {arguments.dev} doesn't ask them,", predictions.keys() - known)
    found = summary(questions, predictions)
    emit(arguments.json, found, *table(found))
    return 0


def table(found: dict[str, float]) -> list[str]:
    """Return the scores as lines of text."""
    lines = [f"exact {found['exact']:.2f} %, F1 {found['f1']:.2f} % of {found['total']:,.0f} questions"]
    for prefix, name in (("HasAns", "with an answer"), ("NoAns", "without an answer")):
        if f"{prefix}_total" in found and found[f"{prefix}_total"] != found["total"]:
            lines.append(
                f"  {name}: exact {found[f'{prefix}_exact']:.2f} %, F1 {found[f'{prefix}_f1']:.2f} % of "
                f"{found[f'{prefix}_total']:,.0f}"
            )
    return lines


def _warn(text: str, ids: set[str]) -> None:
    if ids:
        more = ", ..." if len(ids) > _SHOWN else ""
        say(f"warning: {text} {len(ids)} questions: {', '.join(sorted(ids)[:_SHOWN])}{more}")
