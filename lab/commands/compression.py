"""`bertbench lab compression`: compare int8 and top-k gradients with gradients in full, by samples to target."""

import argparse
from functools import partial

from bertbench.commands import check_at_least_one
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from lab.commands.study import add_folder_arguments, report
from lab.paths import STUDIES
from lab.study.compression import ARMS, CompressionDefinition, run_arm
from lab.study.definition import read_study
from lab.study.engine import Study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds and the folder."""
    parser.add_argument("--seeds", type=int, default=16, metavar="N", help="runs of every arm (default 16)")
    add_folder_arguments(parser, "study_compression", defined=False)


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    check_at_least_one(arguments, "seeds")
    definition = read_study(STUDIES / "compression.json", CompressionDefinition)
    folder = arguments.out or runs_folder() / "study_compression"
    with Progress() as progress:
        study = Study(definition, folder, ARMS, partial(run_arm, definition), progress)
        rows = study.rows(range(1, arguments.seeds + 1))
    report(arguments, "Study: compressed gradients", (definition.question,), study, rows)
    return 0
