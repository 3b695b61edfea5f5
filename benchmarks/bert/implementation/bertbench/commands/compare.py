"""`bertbench compare A B`: two runs, or two sets of runs, side by side."""

import argparse
from pathlib import Path

from bertbench.commands import emit, write_file
from bertbench.common.errors import DataError
from bertbench.report.comparison import as_json, compared, side
from bertbench.report.comparison_page import html, text
from compliance.log import CannotJudge
from compliance.record import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two sides."""
    for name in ("a", "b"):
        parser.add_argument(name, type=Path, metavar=name.upper(), help="a log, or a folder of logs: a set of runs")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the curves, too")


def run(arguments: argparse.Namespace) -> int:
    """Print what differs, or JSON; write the page if one is asked for."""
    try:
        found = compared(side(arguments.a), side(arguments.b))
    except CannotJudge as problem:
        raise DataError(printable(str(problem))) from problem
    if arguments.html:
        write_file(arguments.html, html(found))
    emit(arguments.json, as_json(found), text(found))
    return 0
