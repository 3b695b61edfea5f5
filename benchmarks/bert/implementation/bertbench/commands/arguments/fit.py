"""Define the arguments of `bertbench fit`."""

import argparse

from bertbench.commands import add_number, add_path, add_system
from bertbench.config.load import gpu_card, gpu_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and the devices."""
    add_system(parser)
    add_number(parser, "--gpus", "N", "total number of devices, or of ranks of a CPU system", required=True)
    parser.add_argument(
        "--gpu-model",
        "--gpu",
        type=card,
        metavar="NAME",
        help=f"{', '.join(gpu_models())} (default: the system file's)",
    )
    parser.add_argument("--memory", type=float, metavar="GB", help="memory of each device (default: the system file's)")
    add_path(parser, "--out", "FILE", "write FILE, which ends in .json (default: print it)")
    parser.set_defaults(overrides=[])  # the new file extends a system, without overrides


def card(name: str) -> str:
    """Return the card that a name means, for argparse. Raises ArgumentTypeError for others."""
    if found := gpu_card(name):
        return found
    raise argparse.ArgumentTypeError(f"{name!r}: not one of {', '.join(gpu_models())}; give --memory instead")
