"""`bertbench report`: runs as a table, made by `compliance.report` from their logs alone."""

import argparse
import json
from pathlib import Path

from bertbench.errors import DataError
from bertbench.paths import runs_folder
from compliance.log import CannotJudge
from compliance.report import summary, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs."""
    parser.add_argument(
        "results", nargs="*", type=Path, metavar="RESULTS", help="logs or folders of logs (default: runs/)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a table a system."""
    paths = arguments.results or [runs_folder()]
    try:
        print(json.dumps(summary(paths), indent=2) if arguments.json else table(paths))
    except CannotJudge as problem:
        raise DataError(str(problem)) from problem
    return 0
