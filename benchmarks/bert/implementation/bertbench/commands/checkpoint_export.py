"""`bertbench checkpoint export`: convert our weights to a Hugging Face model."""

import argparse
import sys
from pathlib import Path

from bertbench.checkpoint.weights import open_weights
from bertbench.commands import WEIGHTS_HELP, emit
from bertbench.weights.hugging_face import export


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the weights to read and the folder to write."""
    parser.add_argument("weights", type=Path, metavar="PATH", help=WEIGHTS_HELP)
    parser.add_argument(
        "--to-hf",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder to make, with config.json and model.safetensors for transformers' BertForPreTraining",
    )


def run(arguments: argparse.Namespace) -> int:
    """Export the weights without the vocabulary's padding."""
    weights = open_weights(arguments.weights)
    export(weights, arguments.to_hf)
    emit(arguments.json, {"out": str(arguments.to_hf), "vocab_size": weights.real_vocab_size})
    print(f"wrote {arguments.to_hf}: vocabulary of {weights.real_vocab_size:,}, from {weights.source}", file=sys.stderr)
    return 0
