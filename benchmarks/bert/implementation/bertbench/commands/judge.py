"""`bertbench judge`: another door to `python -m compliance`, with its arguments and its exit codes."""

import argparse

from compliance.__main__ import main


def run(arguments: argparse.Namespace) -> int:
    """Judge; returns the judge's exit code."""
    return main(arguments.words)
