"""`bertbench package`: build a submission package from results and sources, and judge it."""

import argparse

from bertbench.commands import add_flag, add_path, add_ruleset, emit
from bertbench.common.paths import home
from bertbench.results.package import build
from compliance import package_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs to package, the submitter and the folder."""
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="systems with ten runs in the folder of results")
    add_path(parser, "--out", "DIR", "the package: an empty or a new folder", required=True)
    parser.add_argument("--submitter", required=True, metavar="ORG", help="submitter's name in the system descriptions")
    add_path(
        parser,
        "--results",
        "FOLDER",
        "folder with <system>/bert/result_<n>.txt (default: results/)",
        default=home() / "results",
    )
    add_ruleset(parser, "rules to judge by")
    add_flag(parser, "--allow-dirty", "accept sources and runs with uncommitted changes (refused by default)")


def run(arguments: argparse.Namespace) -> int:
    """Build the package and print the judge's verdict."""
    judgement = build(
        arguments.out, arguments.submitter, arguments.systems, arguments.results, arguments.ruleset,
        arguments.allow_dirty,
    )  # fmt: skip
    emit(arguments.json, judgement.as_json(), package_text(judgement))
    return 0
