"""Commands that use trained weights: evaluate them, and predict masked words."""

import argparse
import os
from pathlib import Path

from bertbench.cli.arguments import (
    WEIGHTS_HELP,
    add_number,
    add_path,
    add_system_arguments,
    emit,
    say,
    say_unread,
    system_of,
)
from bertbench.common.paths import runs_folder, shown_path
from bertbench.common.reads import Choice, Reads, Unread
from bertbench.distributed.ranks import launched_ranks

EXPECTATION = (
    "MLPerf's phase-1 checkpoint, unchanged, must score about 0.34085 on MLPerf's 10,000 evaluation samples: "
    "another number means that weights, data or model differ from MLPerf's"
)

EVALUATE = Reads(
    "evaluate",
    sections=("launch.device", "launch.timeout_s", "model", "data.path", "data.eval_path", "evaluation.batch_size"),
    exceptions={
        "precision.compute": Choice(
            ("bf16", "fp16", "fp32"),
            "measuring formats takes longer than an evaluation, and fp8's scales belong to a run",
        ),
        "precision.residual": Unread("an evaluation keeps hidden states in fp32", accepted=("auto", "fp32")),
        "compute.compile": Unread("compiling takes longer than one evaluation", accepted=(None, "none", "auto")),
        "compute.products": Unread("an evaluation multiplies by torch's own products", accepted=("torch",)),
    },
)
"""The settings of training can't change the accuracy of weights, so they are accepted."""


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, which has the data and the model's sizes, and the weights."""
    parser.epilog = EXPECTATION
    add_path(parser, "--weights", "PATH", f"{WEIGHTS_HELP} (default: the system's model.checkpoint)")
    add_system_arguments(parser, EVALUATE, positional=True)


def evaluate(arguments: argparse.Namespace) -> int:
    """Print the accuracy of weights on the evaluation set, on rank 0.

    Called directly, it is one process. Started by torchrun, the ranks share the samples.
    """
    system = system_of(arguments)
    from bertbench.checkpoint.start import one_checkpoint, weights_of
    from bertbench.config.closed import EVALUATION_SAMPLES
    from bertbench.training.score_weights import score_weights

    if arguments.weights is not None:
        one_checkpoint(system, "--weights", arguments.weights)
    path = arguments.weights or weights_of(system)
    ranks = launched_ranks(os.environ)
    score = score_weights(system, path, ranks)
    if ranks is not None and ranks.rank:
        return 0
    say_unread(system, arguments.reads)
    content = {
        "weights": str(path),
        "source": score.source,
        "data": str(score.data),
        "samples": score.samples,
        "precision": score.precision,
        "accuracy": score.accuracy,
        "expectation": EXPECTATION,
    }
    lines = [
        f"accuracy {score.accuracy:.5f} in {score.precision} on {score.samples:,} evaluation samples of {score.data}",
        f"weights {score.weights}, from {score.source}",
    ]
    if score.samples == EVALUATION_SAMPLES:
        lines.append(EXPECTATION)
    emit(arguments, content, *lines)
    return 0


def add_fill_mask_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the text and the model."""
    parser.add_argument("text", metavar="TEXT", help='text with [MASK] at words to predict: "The [MASK] of the list"')
    add_path(parser, "--weights", "PATH", f"{WEIGHTS_HELP} (default: the newest run)")
    add_path(parser, "--vocab", "FILE", "the model's vocab.txt (default: vocab.txt in the folder of the weights)")
    add_number(parser, "--top", "N", "predictions for each word (default 5)", default=5)


def fill_mask(arguments: argparse.Namespace) -> int:
    """Predict the words at each [MASK] of a text: a line for each prediction, best first."""
    from bertbench.checkpoint.run_weights import newest_run, open_weights
    from bertbench.data.text.vocabulary import Vocabulary
    from bertbench.finetune.fill_mask import MASK
    from bertbench.finetune.fill_mask import fill_mask as predicted

    weights = open_weights(arguments.weights or newest_run(runs_folder()))
    vocab: Path = arguments.vocab or weights.vocabulary
    vocabulary = Vocabulary.read(vocab)
    if warning := vocabulary.wrong_case(vocab, lower_case=True):
        say(warning)
    masks = predicted(weights, vocabulary, arguments.text, arguments.top)
    content = {
        "text": arguments.text,
        "weights": str(weights.path),
        "source": weights.source,
        "masks": masks,
    }
    lines = []
    filled = arguments.text
    for predictions in masks:  # the text with each mask replaced by its best word, one after the other
        filled = filled.replace(MASK, predictions[0]["token"], 1)
        lines.append(filled)
        lines += [f"  {prediction['probability']:6.1%}  {prediction['token']}" for prediction in predictions]
    emit(arguments, content, *lines, f"weights {shown_path(weights.path)}, from {weights.source}")
    return 0
