"""`bertbench lab compression`: int8 and top-k gradients beside gradients in full, by samples to target."""

import argparse
from pathlib import Path

from bertbench.commands import aligned, check_at_least_one, emit
from bertbench.common.paths import runs_folder
from bertbench.machine.provenance import provenance
from lab.paths import STUDIES
from lab.study.compression import ARMS, CompressionDefinition, compare
from lab.study.definition import read_study
from lab.study.paired import HEAD, table_row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many seeds, and where the runs are kept."""
    parser.add_argument("--seeds", type=int, default=16, metavar="N", help="runs of every arm (default 16)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help="folder of its runs; a study that was stopped continues there (default: runs/study_compression)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run what isn't there yet, print a table."""
    check_at_least_one(arguments, "seeds")
    definition = read_study(STUDIES / "compression.json", CompressionDefinition)
    rows, found = compare(definition, arguments.seeds, arguments.out or runs_folder() / "study_compression")
    content = {
        "definition": definition.model_dump(mode="json"),
        "origin": provenance(),
        "comparisons": found,
        "rows": rows,
    }
    emit(arguments.json, content, aligned(HEAD, [table_row(arm, rows, found) for arm in ARMS]))
    return 0
