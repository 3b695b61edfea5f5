"""`bertbench data show DIR`: describe a dataset."""

import argparse
from pathlib import Path

from bertbench.commands import emit
from bertbench.data.store.summary import drawn, summarize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which dataset."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="dataset to describe")


def run(arguments: argparse.Namespace) -> int:
    """Print counts and a histogram of lengths."""
    summary = summarize(arguments.folder)
    emit(arguments.json, summary, drawn(summary))
    return 0
