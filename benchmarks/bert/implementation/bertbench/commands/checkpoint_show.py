"""`bertbench checkpoint show`: what a weights file holds."""

import argparse
from pathlib import Path

from bertbench.commands import emit
from bertbench.weights.file import Weights


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which file."""
    parser.add_argument("weights", type=Path, metavar="FILE", help="weights file")


def run(arguments: argparse.Namespace) -> int:
    """Print tensors with their shapes, then the metadata."""
    weights = Weights.open(arguments.weights)
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
    emit(arguments.json, content, "\n".join(lines))
    return 0
