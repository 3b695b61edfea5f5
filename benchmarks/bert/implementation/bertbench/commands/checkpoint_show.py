"""`bertbench checkpoint show`: what a weights file holds."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from bertbench.weights.file import Weights


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which file."""
    parser.add_argument("weights", type=Path, metavar="FILE", help="weights file")


def run(arguments: argparse.Namespace) -> int:
    """Print tensors with their shapes, then the metadata."""
    weights = Weights.open(arguments.weights)
    if arguments.json:
        content = {
            "path": str(weights.path),
            "source": weights.source,
            "shape": asdict(weights.shape),
            "real_vocab_size": weights.real_vocab_size,
            "parameters": weights.parameters,
            "tensors": weights.tensors,
        }
        print(json.dumps(content, indent=2))
        return 0
    for name, shape in weights.tensors.items():
        print(f"{name:<40} {' x '.join(f'{size:,}' for size in shape)}")
    print(f"{len(weights.tensors)} tensors, {weights.parameters:,} parameters, from {weights.source}")
    print(f"vocabulary of {weights.real_vocab_size:,}, padded to {weights.shape.vocab_size:,} rows")
    return 0
