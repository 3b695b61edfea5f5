"""`bertbench compare A B`: compare two runs, or two sets of runs."""

import argparse
from pathlib import Path

from bertbench.commands import emit, write_file
from bertbench.common.errors import DataError
from bertbench.report.comparison import as_json, compared, side
from bertbench.report.comparison_page import html, text
from compliance.log import CannotJudge
from compliance.record import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add both sides and the page."""
    for name in ("a", "b"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="a log, or a folder of logs: a set of runs")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with the curves")


def run(arguments: argparse.Namespace) -> int:
    """Print the differences, or JSON; write the page if requested."""
    try:
        found = compared(side(arguments.a), side(arguments.b))
    except CannotJudge as problem:
        raise DataError(printable(str(problem))) from problem
    if arguments.html:
        write_file(arguments.html, html(found))
    emit(arguments.json, as_json(found), text(found))
    return 0
