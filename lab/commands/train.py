"""`bertbench lab train`: train a system as `bertbench train` does, by a technique of lab/techniques or of your own."""

import argparse

from bertbench.cli.arguments import system_of
from bertbench.cli.running import add_train_arguments, train_system
from bertbench.launch.run_options import run_reads
from lab.techniques.read import TECHNIQUES, read_technique


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bertbench train`, and the technique."""
    add_train_arguments(parser)
    parser.add_argument(
        "--technique", nargs="+", required=True, metavar=("NAME", "OPTION=VALUE"),
        help=f"one of {', '.join(TECHNIQUES)}, or MODULE:CLASS of your own, with its options (docs/techniques.md)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Make one run; return the exit code of `bertbench train`."""
    words = list(arguments.technique)
    technique = read_technique(words)
    system = system_of(arguments, run_reads(arguments.short))
    technique.check(system)
    rank_words = ["lab", "train", arguments.system, "--technique", *words]
    return train_system(system, arguments, technique, rank_words)
