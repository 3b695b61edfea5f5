"""`bertbench report`: show runs as a table or a page, from their logs only; `bertbench runs` lists them, a row each."""

import argparse
from pathlib import Path

from bertbench.commands import emit, write_file
from bertbench.common.errors import DataError
from bertbench.common.paths import runs_folder, shown_path
from bertbench.report.listing import LISTED, arranged, listed, run_logs, text_table
from bertbench.report.report_page import html
from bertbench.report.runs import summarized, systems, text
from compliance.official import DEFAULT_RULESET, rulesets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs, the rules they are judged by, and what to show of them."""
    parser.add_argument(
        "results", nargs="*", type=Path, metavar="RESULTS", help="logs or folders of logs (default: runs/, or LOGDIR)"
    )
    parser.add_argument(
        "--ruleset", default=DEFAULT_RULESET, choices=rulesets(), metavar="R",
        help=f"ruleset of the verdicts (default {DEFAULT_RULESET})",
    )  # fmt: skip
    if parser.get_default("path") == "runs":
        parser.add_argument(
            "--sort", choices=LISTED, default="run", metavar="COLUMN",
            help=f"column to sort by: {', '.join(LISTED)} (default: run)",
        )  # fmt: skip
        parser.add_argument("--reverse", action="store_true", help="sort from the largest down")
    else:
        parser.add_argument("--details", action="store_true", help="add start-up, wall clock and energy")
        parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page")


def run(arguments: argparse.Namespace) -> int:
    """Print the table of the runs, or JSON; write the page if requested."""
    folders = arguments.results or [runs_folder()]
    if arguments.path == "runs":
        return _list(folders, arguments)
    found = systems(folders)
    if arguments.html:
        write_file(arguments.html, html(found, arguments.ruleset))
    contents = [summarized(group) for group in found]
    emit(arguments.json, contents, "\n\n".join(text(content, arguments.details) for content in contents))
    return 0


def _list(folders: list[Path], arguments: argparse.Namespace) -> int:
    logs = [log for folder in folders for log in run_logs(folder)]
    if not logs:
        named = ", ".join(shown_path(folder) for folder in folders)
        raise DataError(f"{named}: found no run there; start one with `bertbench train`, or name a folder of logs")
    rows = [listed(log, arguments.ruleset) | {"run": shown_path(log)} for log in logs]
    if arguments.sort != "run":
        rows = arranged(rows, arguments.sort, arguments.reverse)
    elif arguments.reverse:  # the order found has 9 before 10
        rows.reverse()
    emit(arguments.json, rows, text_table(rows))
    return 0
