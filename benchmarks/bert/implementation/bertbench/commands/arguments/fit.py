"""Define the arguments of `bertbench fit`."""

import argparse
from pathlib import Path

from bertbench.commands import add_system
from bertbench.config.load import gpu_card, gpu_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and the devices."""
    add_system(parser)
    parser.add_argument(
        "--gpus", type=int, required=True, metavar="N", help="total number of devices, or of ranks of a CPU system"
    )
    parser.add_argument(
        "--gpu-model",
        "--gpu",
        type=card,
        metavar="NAME",
        help=f"{', '.join(gpu_models())} (default: the system file's)",
    )
    parser.add_argument("--memory", type=float, metavar="GB", help="memory of each device (default: the system file's)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write FILE, which ends in .json (default: print it)")
    parser.set_defaults(overrides=[])  # the new file extends a system, without overrides


def card(name: str) -> str:
    """Return the card that a name means, for argparse. Raises ArgumentTypeError for others."""
    if found := gpu_card(name):
        return found
    raise argparse.ArgumentTypeError(f"{name!r}: not one of {', '.join(gpu_models())}; give --memory instead")
