"""`bertbench report`: show runs as a table or a page, from their logs only."""

import argparse
from pathlib import Path

from bertbench.commands import add_flag, add_path, add_ruleset, emit, write_file
from bertbench.common.paths import runs_folder
from bertbench.report.report_page import report_page as html
from bertbench.report.run_groups import judged_groups as systems
from bertbench.report.run_groups import summarized
from bertbench.report.run_tables import report_text as text


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the runs, and the rules they are judged by; `runs` takes both too."""
    add_path(parser, "results", "RESULTS", "logs or folders of logs (default: runs/, or LOGDIR)", nargs="*")
    add_ruleset(parser, "ruleset of the verdicts", of_each_log=True)


def folders_of(arguments: argparse.Namespace) -> list[Path]:
    """Return the logs and folders that the command names, else the folder of runs."""
    return arguments.results or [runs_folder()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs, the rules they are judged by, and what to show of them."""
    add_results(parser)
    add_flag(parser, "--details", "add start-up, wall clock and energy")
    add_path(parser, "--html", "FILE", "also write a page")


def run(arguments: argparse.Namespace) -> int:
    """Print the table of the runs, or JSON; write the page if requested."""
    found = systems(folders_of(arguments), arguments.ruleset)
    contents = [summarized(group) for group in found]
    if arguments.html:
        write_file(arguments.html, html(found, contents, arguments.html.parent))
    emit(arguments.json, contents, "\n\n".join(text(content, arguments.details) for content in contents))
    return 0
