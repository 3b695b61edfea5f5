"""`bertbench systems`: list the project's systems."""

import argparse

from bertbench.commands import emit
from bertbench.config import load_system, system_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each system."""
    systems = [load_system(name) for name in system_names()]
    rows = [
        {"name": system.name, "description": system.description, "division": system.hardware.division,
         "ranks": system.world_size, "global_batch_size": system.global_batch_size}
        for system in systems
    ]  # fmt: skip
    lines = [
        f"{system.name:<20} {system.world_size:>5} ranks  {system.hardware.division:<6}  {system.description}"
        for system in systems
    ]
    emit(arguments.json, rows, *lines)
    return 0
