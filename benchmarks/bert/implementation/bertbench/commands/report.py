"""`bertbench report`: runs as a table or as a page, made by `compliance` from their logs alone."""

import argparse
import json
import sys
from pathlib import Path

from bertbench.common.errors import DataError, system_reason
from bertbench.common.paths import runs_folder
from bertbench.report.report_page import html
from bertbench.report.runs import summary, table
from compliance.log import CannotJudge
from compliance.official import DEFAULT_RULESET, rulesets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, and how to show them."""
    parser.add_argument(
        "results", nargs="*", type=Path, metavar="RESULTS", help="logs or folders of logs (default: runs/)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page to look at, too")
    parser.add_argument(
        "--ruleset", default=DEFAULT_RULESET, choices=rulesets(), metavar="R",
        help=f"rules that the page judges the logs by (default {DEFAULT_RULESET})",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Print a table a system, or JSON; write the page if one is asked for."""
    paths = arguments.results or [runs_folder()]
    try:
        if arguments.html:
            _write(arguments.html, html(paths, arguments.ruleset))
        print(json.dumps(summary(paths), indent=2) if arguments.json else table(paths))
    except CannotJudge as problem:
        raise DataError(str(problem)) from problem
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="replace")  # a log may hold half of a surrogate pair
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({system_reason(error)}); name another file with --html") from error
    print(f"wrote {path}", file=sys.stderr)
