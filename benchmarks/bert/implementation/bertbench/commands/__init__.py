"""One module a command: its arguments, and a thin call into the code that does the work."""

import argparse


def add_system_arguments(parser: argparse.ArgumentParser) -> None:
    """--set, for every command that reads a system file."""
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="NAME=VALUE",
        help="override a setting, for example --set schedule.max_steps=100; may be repeated",
    )  # fmt: skip
