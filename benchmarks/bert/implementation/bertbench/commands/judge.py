"""`bertbench judge`: run `python -m compliance`, with its arguments and its exit codes."""

import argparse

from compliance.__main__ import main


def run(arguments: argparse.Namespace) -> int:
    """Run the judge and return its exit code."""
    return main(arguments.words, "bertbench judge")
