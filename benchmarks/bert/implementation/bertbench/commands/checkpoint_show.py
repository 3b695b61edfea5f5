"""`bertbench checkpoint show`: list the tensors of a weights file, a run or a snapshot."""

import argparse

from bertbench.checkpoint.run_weights import open_weights
from bertbench.commands import WEIGHTS_HELP, add_path, emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which weights."""
    add_path(parser, "weights", "PATH", WEIGHTS_HELP)


def run(arguments: argparse.Namespace) -> int:
    """Print tensors with their shapes, then the metadata."""
    weights = open_weights(arguments.weights)
    content = {
        "path": str(weights.path),
        "source": weights.source,
        "shape": weights.shape,
        "real_vocab_size": weights.real_vocab_size,
        "parameters": weights.parameters,
        "tensors": weights.tensors,
    }
    lines = [
        *(f"{name:<40} {' x '.join(f'{size:,}' for size in shape)}" for name, shape in weights.tensors.items()),
        f"{len(weights.tensors)} tensors, {weights.parameters:,} parameters, from {weights.source}",
        f"vocabulary of {weights.real_vocab_size:,}, padded to {weights.shape.vocab_size:,} rows",
    ]
    emit(arguments.json, content, *lines)
    return 0
