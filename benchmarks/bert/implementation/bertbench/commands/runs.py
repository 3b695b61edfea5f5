"""`bertbench runs`: list runs, a row each, from their logs only."""

import argparse

from bertbench.commands import emit, say
from bertbench.commands.report import add_results, folders_of
from bertbench.common.paths import shown_path
from bertbench.report.run_list import LISTED, NO_LOG, arranged, check_log, listed, run_logs, why_no_log
from bertbench.report.run_list import list_text as text_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs, the rules they are judged by, and the order."""
    add_results(parser)
    parser.add_argument(
        "--sort", choices=LISTED, default="run", metavar="COLUMN",
        help=f"column to sort by: {', '.join(LISTED)} (default: run)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Print the rows, or JSON."""
    logs = [log for folder in folders_of(arguments) for log in run_logs(folder)]
    rows = [listed(log, arguments.ruleset) | {"run": shown_path(log)} for log in logs]
    no_logs = [log for log, row in zip(logs, rows, strict=True) if row["status"] == NO_LOG]
    if len(no_logs) == len(logs):
        check_log(logs[0])  # raises its reason
    say(*map(why_no_log, no_logs))
    if arguments.sort != "run":  # the order found has 9 before 10
        rows = arranged(rows, arguments.sort)
    emit(arguments.json, rows, text_table(rows))
    return 0
