"""Define the arguments of `bertbench plan`."""

import argparse

from bertbench.commands import add_system_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and one of its ranks."""
    parser.add_argument("--rank", type=int, default=0, metavar="R", help="rank to dry-run (default 0)")
    parser.add_argument(
        "--layouts", action="store_true", help="list every layout of the system's GPUs with memory and step time"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a problem would stop the run")
    add_system_arguments(parser, positional=True)
