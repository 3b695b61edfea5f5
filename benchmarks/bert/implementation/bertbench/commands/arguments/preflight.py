"""Define the arguments of `bertbench preflight`."""

import argparse

from bertbench.commands import add_system_arguments
from bertbench.preflight.verdict import LEAST_GBIT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and its least bandwidth."""
    parser.add_argument(
        "--min-gbit", type=float, metavar="G",
        help="least bandwidth of an all-reduce, in Gbit/s as nccl-tests counts it "
        f"(default: {LEAST_GBIT['cuda']:g} on GPUs, none on CPUs)",
    )  # fmt: skip
    add_system_arguments(parser, positional=True)
