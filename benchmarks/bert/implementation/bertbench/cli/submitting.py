"""Commands about results: judge logs, build a submission package."""

import argparse

from bertbench.cli.arguments import add_flag, add_path, add_ruleset, emit
from bertbench.common.paths import runs_folder


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: the judge parses its own words."""


def judge(arguments: argparse.Namespace) -> int:
    """Run `python -m compliance` with the words of the command line, and return its exit code."""
    from compliance.__main__ import main

    return main(arguments.words, "bertbench judge")


def add_package_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs to package, the submitter and the folder."""
    parser.add_argument(
        "systems", nargs="+", metavar="SYSTEM", help="systems to package, each with ten runs in the folder of --results"
    )
    add_path(parser, "--out", "DIR", "folder to write the package to, new or empty", required=True)
    parser.add_argument(
        "--submitter", required=True, metavar="ORG", help="name of the submitter in the system descriptions"
    )
    add_path(parser, "--results", "FOLDER", "folder with <system>/bert/result_<n>.txt (default: runs/, or LOGDIR)")
    add_ruleset(parser, "rules to judge by")
    add_flag(parser, "--allow-dirty", "also package sources and runs with uncommitted changes")


def package(arguments: argparse.Namespace) -> int:
    """Build a submission package from results and sources, and print the judge's verdict."""
    from bertbench.runs.package import build
    from compliance import package_text

    judgement = build(
        arguments.out,
        arguments.submitter,
        arguments.systems,
        arguments.results or runs_folder(),
        arguments.ruleset,
        arguments.allow_dirty,
    )
    emit(arguments, judgement.as_json(), package_text(judgement))
    return 0
