"""`bertbench package`: build a submission package from results and sources, and judge it."""

import argparse
import sys
from pathlib import Path

from bertbench.commands import emit
from bertbench.common.paths import home
from bertbench.results.package import build, origins
from compliance.official import DEFAULT_RULESET, rulesets
from compliance.package import judgement_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the runs to package, the submitter and the folder."""
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="systems with ten runs in the folder of results")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="the package: an empty or a new folder")
    parser.add_argument("--submitter", required=True, metavar="ORG", help="submitter's name in the system descriptions")
    parser.add_argument(
        "--results", type=Path, default=home() / "results", metavar="FOLDER",
        help="folder with <system>/bert/result_<n>.txt (default: results/)",
    )  # fmt: skip
    parser.add_argument(
        "--ruleset", default=DEFAULT_RULESET, choices=rulesets(), metavar="R",
        help=f"rules to judge by (default {DEFAULT_RULESET})",
    )  # fmt: skip
    parser.add_argument(
        "--allow-dirty", action="store_true",
        help="accept sources and runs with uncommitted changes (refused by default)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Build the package and print the judge's verdict."""
    measured = [origins(arguments.results, system) for system in dict.fromkeys(arguments.systems)]
    judgement = build(
        arguments.out, arguments.submitter, arguments.systems, arguments.results, arguments.ruleset,
        arguments.allow_dirty,
    )  # fmt: skip
    print("\n".join(measured), file=sys.stderr)
    emit(arguments.json, judgement.as_json(), judgement_text(judgement))
    return 0
