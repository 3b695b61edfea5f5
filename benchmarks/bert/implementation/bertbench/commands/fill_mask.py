"""`bertbench fill-mask TEXT`: predict the words at each [MASK] by a trained model."""

import argparse

from bertbench.checkpoint.run_weights import newest_run, open_weights
from bertbench.commands import WEIGHTS_HELP, add_number, add_path, emit
from bertbench.common.paths import runs_folder, shown_path
from bertbench.data.text.vocabulary import Vocabulary
from bertbench.finetune.fill_mask import MASK, fill_mask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the text and the model."""
    parser.add_argument("text", metavar="TEXT", help=f'text with {MASK} at words to predict: "The {MASK} of the list"')
    add_path(
        parser,
        "--checkpoint",
        "PATH",
        f"{WEIGHTS_HELP} (default: the newest run)",
    )
    add_path(parser, "--vocab", "FILE", "the model's vocab.txt (default: the one beside the weights)")
    add_number(parser, "--top", "N", "predictions for each word (default 5)", default=5)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each prediction, best first."""
    weights = open_weights(arguments.checkpoint or newest_run(runs_folder()))
    vocabulary = Vocabulary.read(arguments.vocab or weights.vocabulary)
    predicted = fill_mask(weights, vocabulary, arguments.text, arguments.top)
    content = {
        "text": arguments.text,
        "checkpoint": str(weights.path),
        "source": weights.source,
        "masks": predicted,
    }
    origin = f"weights {shown_path(weights.path)}, from {weights.source}"
    lines, filled = [], arguments.text
    for predictions in predicted:  # the text with each mask replaced by its best word, one after the other
        filled = filled.replace(MASK, predictions[0]["token"], 1)
        lines += [filled, *(f"  {one['probability']:6.1%}  {one['token']}" for one in predictions)]
    emit(arguments.json, content, *lines, origin)
    return 0
