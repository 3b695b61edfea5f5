"""`bertbench compare A B`: compare two runs, or two sets of runs."""

import argparse

from bertbench.commands import add_path, add_ruleset, emit, write_file
from bertbench.report.comparison import compared
from bertbench.report.comparison_page import comparison_page as html
from bertbench.report.comparison_page import comparison_text as text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add both sides and the page."""
    for name in ("a", "b"):
        add_path(parser, name, name.upper(), "a log, or a folder of logs: a set of runs")
    add_ruleset(parser, "ruleset of the verdicts; a run that fails is in no mean", of_each_log=True)
    add_path(parser, "--html", "FILE", "also write a page with the curves")


def run(arguments: argparse.Namespace) -> int:
    """Print the differences, or JSON; write the page if requested."""
    found = compared(arguments.a, arguments.b, arguments.ruleset)
    if arguments.html:
        write_file(arguments.html, html(found))
    emit(arguments.json, found, text(found))
    return 0
