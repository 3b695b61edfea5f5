"""Define the arguments of `bertbench evaluate`."""

import argparse
from pathlib import Path

from bertbench.commands import WEIGHTS_HELP, add_system_arguments

EXPECTATION = (
    "MLPerf's phase-1 checkpoint, unchanged, must score about 0.34085 on MLPerf's 10,000 evaluation samples: "
    "another number means that weights, data or model differ from MLPerf's"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, which has the data and the model's sizes, and the weights."""
    parser.epilog = EXPECTATION
    parser.add_argument(
        "--checkpoint", type=Path, metavar="PATH", help=f"{WEIGHTS_HELP} (default: the system's model.checkpoint)"
    )
    add_system_arguments(parser, positional=True)
