"""Define the arguments of `bertbench init`."""

import argparse
from pathlib import Path

from bertbench.config.load import gpu_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster and the source of hyper-parameters."""
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes of the cluster (default 1)")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs on each node (default: this machine's number)")
    parser.add_argument(
        "--gpu-model", "--gpu", metavar="NAME",
        help=f"{', '.join(gpu_models())}, or another name, written as given (default: this machine's)",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=int, metavar="N", help="global batch size (default: the known one with the shortest forecast)"
    )
    parser.add_argument(
        "--from", dest="origin", metavar="SYSTEM",
        help="take this system's hyper-parameters (default: the published result or reference point nearest in batch)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="write FILE, which ends in .json (default: print it)")
