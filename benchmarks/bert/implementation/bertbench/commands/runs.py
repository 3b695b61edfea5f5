"""`bertbench runs`: list the runs in LOGDIR, a row each."""

import argparse

from bertbench.commands import emit
from bertbench.commands.arguments.results import add_results
from bertbench.common.errors import DataError
from bertbench.common.paths import runs_folder, shown_path
from bertbench.report.listing import Listed, arranged, listed, run_logs, text_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and their order."""
    add_results(parser, "the verdicts")
    parser.add_argument(
        "--sort", choices=Listed._fields, default="run", metavar="COLUMN",
        help=f"column to sort by: {', '.join(Listed._fields)} (default: run)",
    )  # fmt: skip
    parser.add_argument("--reverse", action="store_true", help="sort from the largest down")


def run(arguments: argparse.Namespace) -> int:
    """Print a table, or JSON."""
    folders = arguments.results or [runs_folder()]
    logs = [log for folder in folders for log in run_logs(folder)]
    if not logs:
        named = ", ".join(shown_path(folder) for folder in folders)
        raise DataError(f"{named}: found no run there; start one with `bertbench train`, or name a folder of logs")
    rows = [listed(log, arguments.ruleset)._replace(run=shown_path(log)) for log in logs]
    if arguments.sort != "run":
        rows = arranged(rows, arguments.sort, arguments.reverse)
    elif arguments.reverse:  # the order found has 9 before 10
        rows.reverse()
    emit(arguments.json, [row._asdict() for row in rows], text_table(rows))
    return 0
