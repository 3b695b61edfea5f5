"""`bertbench data show DIR`: describe a dataset."""

import argparse

from bertbench.commands import add_path, emit
from bertbench.data.store.summary import drawn, summarize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which dataset."""
    add_path(parser, "folder", "DIR", "dataset to describe")


def run(arguments: argparse.Namespace) -> int:
    """Print counts and a histogram of lengths."""
    summary = summarize(arguments.folder)
    emit(arguments.json, summary, drawn(summary))
    return 0
