"""Define the arguments of `bertbench plan`."""

import argparse

from bertbench.commands import add_flag, add_number, add_system_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system and one of its ranks."""
    add_number(parser, "--rank", "R", "rank to dry-run (default 0)", default=0)
    add_flag(parser, "--layouts", "list every layout of the system's GPUs with memory and step time")
    add_flag(parser, "--strict", "exit with 1 if a problem would stop the run")
    add_system_arguments(parser, positional=True)
