"""`bertbench checkpoint export`: convert our weights to a Hugging Face model."""

import argparse

from bertbench.checkpoint.hugging_face import export
from bertbench.checkpoint.run_weights import open_weights
from bertbench.commands import WEIGHTS_HELP, add_path, emit, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the weights to read and the folder to write."""
    add_path(parser, "weights", "PATH", WEIGHTS_HELP)
    add_path(
        parser,
        "--to-hf",
        "DIR",
        "folder to make, with config.json and model.safetensors for transformers' BertForPreTraining",
        required=True,
    )


def run(arguments: argparse.Namespace) -> int:
    """Export the weights without the vocabulary's padding."""
    weights = open_weights(arguments.weights)
    export(weights, arguments.to_hf)
    emit(arguments.json, {"out": str(arguments.to_hf), "vocab_size": weights.real_vocab_size})
    say(f"wrote {arguments.to_hf}: vocabulary of {weights.real_vocab_size:,}, from {weights.source}")
    return 0
