"""Define the arguments of `bertbench finetune squad`."""

import argparse
from pathlib import Path

from bertbench.commands import SYSTEM_HELP, WEIGHTS_HELP, add_system_arguments, seed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, the questions, the weights and the folder to write."""
    parser.epilog = (
        "The section `finetune` of the system file has epochs, learning rate and lengths; for example "
        "--set finetune.epochs=3. docs/finetuning.md lists the output files."
    )
    parser.add_argument("--system", required=True, help=SYSTEM_HELP)
    parser.add_argument(
        "--train", type=Path, required=True, metavar="FILE", help="questions to train on, SQuAD 1.1 or 2.0"
    )
    parser.add_argument("--dev", type=Path, required=True, metavar="FILE", help="questions to answer after every epoch")
    parser.add_argument("--vocab", type=Path, required=True, metavar="FILE", help="the model's vocab.txt")
    parser.add_argument(
        "--init", type=Path, metavar="PATH",
        help=f"weights to start from: {WEIGHTS_HELP} (default: the system's model.checkpoint, else random weights)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make, or an empty one")
    parser.add_argument("--seed", type=seed, help="repeat the run that logged this seed (default: from entropy)")
    add_system_arguments(parser)
