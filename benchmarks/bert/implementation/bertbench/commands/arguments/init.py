"""Define the arguments of `bertbench init`."""

import argparse

from bertbench.commands import add_number, add_path
from bertbench.config.load import gpu_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster and the source of hyper-parameters."""
    add_number(parser, "--nodes", "N", "nodes of the cluster (default 1)", default=1)
    add_number(parser, "--gpus", "N", "GPUs on each node (default: this machine's number)")
    parser.add_argument(
        "--gpu-model", "--gpu", metavar="NAME",
        help=f"{', '.join(gpu_models())}, or another name, written as given (default: this machine's)",
    )  # fmt: skip
    add_number(parser, "--batch", "N", "global batch size (default: the known one with the shortest forecast)")
    parser.add_argument(
        "--from", dest="origin", metavar="SYSTEM",
        help="take this system's hyper-parameters (default: the published result or reference point nearest in batch)",
    )  # fmt: skip
    add_path(parser, "--out", "FILE", "write FILE, which ends in .json (default: print it)")
