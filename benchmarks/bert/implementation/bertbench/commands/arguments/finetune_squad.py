"""Define the arguments of `bertbench finetune squad`."""

import argparse

from bertbench.commands import SYSTEM_HELP, WEIGHTS_HELP, add_path, add_system_arguments, seed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, the questions, the weights and the folder to write."""
    parser.epilog = (
        "The section `finetune` of the system file has epochs, learning rate and lengths; for example "
        "--set finetune.epochs=3. docs/finetuning.md lists the output files."
    )
    parser.add_argument("--system", required=True, help=SYSTEM_HELP)
    add_path(parser, "--train", "FILE", "questions to train on, SQuAD 1.1 or 2.0", required=True)
    add_path(parser, "--dev", "FILE", "questions to answer after every epoch", required=True)
    add_path(parser, "--vocab", "FILE", "the model's vocab.txt", required=True)
    add_path(
        parser,
        "--init",
        "PATH",
        f"weights to start from: {WEIGHTS_HELP} (default: the system's model.checkpoint, else random weights)",
    )
    add_path(parser, "--out", "DIR", "folder to make, or an empty one", required=True)
    parser.add_argument("--seed", type=seed, help="repeat the run that logged this seed (default: from entropy)")
    add_system_arguments(parser)
