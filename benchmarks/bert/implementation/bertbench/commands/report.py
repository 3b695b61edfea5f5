"""`bertbench report`: show runs as a table or a page, from their logs only."""

import argparse
from pathlib import Path

from bertbench.commands import emit, write_file
from bertbench.commands.arguments.results import add_results
from bertbench.common.errors import DataError
from bertbench.common.paths import runs_folder
from bertbench.report.report_page import html
from bertbench.report.runs import summary, systems, table
from compliance.log import CannotJudge
from compliance.record import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs and the page."""
    add_results(parser, "the page's verdicts")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page")


def run(arguments: argparse.Namespace) -> int:
    """Print a table for each system and its settings, or JSON; write the page if requested."""
    paths = arguments.results or [runs_folder()]
    try:
        found = systems(paths)
        if arguments.html:
            write_file(arguments.html, html(found, arguments.ruleset))
        contents = summary(found)
    except CannotJudge as problem:
        raise DataError(printable(str(problem))) from problem
    emit(arguments.json, contents, table(contents))
    return 0
