"""`bertbench lab buckets`: numbers of gradient buckets and scalings of their clipping threshold, on virtual ranks."""

import argparse

from bertbench.commands import check_at_least_one
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from lab.commands.study import add_folder_arguments, report
from lab.paths import STUDIES
from lab.study.buckets import BucketsDefinition
from lab.study.definition import read_study
from lab.study.engine import Study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds, the definition and the folder."""
    parser.add_argument("--seeds", type=int, default=12, metavar="N", help="runs of every arm (default 12)")
    add_folder_arguments(parser, "study_buckets")


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    check_at_least_one(arguments, "seeds")
    definition = read_study(arguments.definition or STUDIES / "buckets.json", BucketsDefinition)
    definition.check_buckets()
    folder = arguments.out or runs_folder() / "study_buckets"
    with Progress() as progress:
        study = Study(definition, folder, definition.arms(), definition.run_trial, progress)
        rows = study.rows(range(1, arguments.seeds + 1))
    report(arguments, "Study: buckets", (definition.question,), study, rows)
    return 0
