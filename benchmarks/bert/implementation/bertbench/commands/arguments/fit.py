"""What `bertbench fit` takes."""

import argparse
from pathlib import Path

from bertbench.commands import add_system


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A system and the devices that it should run on."""
    add_system(parser)
    parser.add_argument(
        "--gpus", type=int, required=True, metavar="N", help="devices, or ranks of a CPU system, in all"
    )
    parser.add_argument(
        "--memory", type=float, metavar="GB", help="memory of each device (default: what the system file says)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write FILE, which ends in .json (default: print it)")
    parser.set_defaults(overrides=[])  # what a file extends has none
