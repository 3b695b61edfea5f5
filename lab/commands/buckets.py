"""`bertbench lab buckets`: numbers of gradient buckets and scalings of their clipping threshold, on virtual ranks."""

import argparse
import statistics

from bertbench.commands import aligned, check_at_least_one, emit
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from bertbench.machine.provenance import provenance
from lab.commands.study import add_folder_arguments
from lab.paths import STUDIES
from lab.study.buckets import BucketsDefinition, compare
from lab.study.definition import read_study
from lab.study.paired import HEAD, table_row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds, the definition and the folder."""
    parser.add_argument("--seeds", type=int, default=12, metavar="N", help="runs of every arm (default 12)")
    add_folder_arguments(parser, "study_buckets")


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    check_at_least_one(arguments, "seeds")
    definition = read_study(arguments.definition or STUDIES / "buckets.json", BucketsDefinition)
    folder = arguments.out or runs_folder() / "study_buckets"
    arms = definition.arms()
    with Progress() as progress:
        rows, found = compare(definition, arguments.seeds, folder, progress)
    content = {
        "definition": definition.model_dump(mode="json"),
        "origin": provenance(),
        "comparisons": found,
        "rows": rows,
    }
    clipped = {arm.name: statistics.mean(row.clipped for row in rows if row.arm == arm.name) for arm in arms}
    table = [(*table_row(arm.name, rows, found), f"{clipped[arm.name]:.0%}") for arm in arms]
    emit(arguments.json, content, aligned((*HEAD, "clipped"), table))
    return 0
