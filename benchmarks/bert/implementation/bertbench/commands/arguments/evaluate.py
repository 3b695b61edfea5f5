"""Define the arguments of `bertbench evaluate`."""

import argparse

from bertbench.commands import WEIGHTS_HELP, add_path, add_system_arguments

EXPECTATION = (
    "MLPerf's phase-1 checkpoint, unchanged, must score about 0.34085 on MLPerf's 10,000 evaluation samples: "
    "another number means that weights, data or model differ from MLPerf's"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, which has the data and the model's sizes, and the weights."""
    parser.epilog = EXPECTATION
    add_path(parser, "--checkpoint", "PATH", f"{WEIGHTS_HELP} (default: the system's model.checkpoint)")
    add_system_arguments(parser, positional=True)
