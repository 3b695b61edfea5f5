"""`bertbench data shuffle DIR`: write the same samples in random order, over new shards."""

import argparse

from bertbench.commands import add_number, add_path, seed
from bertbench.commands.data_prepare import report
from bertbench.common.progress import Progress
from bertbench.data.store.shuffle import shuffle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the dataset, the seed, the shards and the folder to write."""
    add_path(parser, "folder", "DIR", "a prepared dataset with training samples")
    parser.add_argument("--seed", type=seed, required=True, help="the same seed gives the same order")
    add_number(parser, "--shards", "K", "number of shards to write", required=True)
    add_path(parser, "--out", "DIR2", "folder to make", required=True)


def run(arguments: argparse.Namespace) -> int:
    """Shuffle, or report that the dataset exists already."""
    with Progress() as progress:
        made = shuffle(arguments.folder, arguments.out, arguments.seed, arguments.shards, progress)
        report(arguments, progress, arguments.out, *made)
    return 0
