"""`bertbench data verify DIR`: check a dataset's files, and optionally that it holds the samples of another."""

import argparse
import sys
from pathlib import Path

from bertbench.commands import emit
from bertbench.common.progress import Progress
from bertbench.data.store.verify import differences, verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the datasets to check."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="dataset to check")
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="dataset that must hold the same samples, in any order"
    )


def run(arguments: argparse.Namespace) -> int:
    """Return 0 without problems (an older tokenizer's dataset gets a warning), 1 with one line per problem."""
    with Progress() as progress:
        found = verify(arguments.folder, progress)
        problems = list(found.problems)
        if arguments.against is not None:
            problems += differences(arguments.folder, found, arguments.against, verify(arguments.against, progress))
    splits = {name: {"samples": split.samples, "digest": str(split)} for name, split in found.multisets.items()}
    content = {"path": str(arguments.folder), "ok": not problems, "problems": problems, "splits": splits}
    described = ", ".join(f"{split.samples:,} {name} samples" for name, split in found.multisets.items())
    same = f", the same as in {arguments.against}" if arguments.against else ""
    text = f"{arguments.folder}: {described}, all sound, as the manifest says{same}"
    emit(arguments.json, {**content, "warnings": found.warnings}, "" if problems else text)
    for line in (*problems, *(f"warning: {warning}" for warning in found.warnings)):
        print(line, file=sys.stderr)
    return 1 if problems else 0
