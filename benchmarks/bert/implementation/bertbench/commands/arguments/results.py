"""The arguments of commands that read logs: which, and by which rules they are judged."""

import argparse
from pathlib import Path

from compliance.official import DEFAULT_RULESET, rulesets


def add_results(parser: argparse.ArgumentParser, judged: str) -> None:
    """Add RESULTS, and the ruleset of what is `judged`."""
    parser.add_argument(
        "results", nargs="*", type=Path, metavar="RESULTS", help="logs or folders of logs (default: runs/, or LOGDIR)"
    )
    parser.add_argument(
        "--ruleset", default=DEFAULT_RULESET, choices=rulesets(), metavar="R",
        help=f"ruleset of {judged} (default {DEFAULT_RULESET})",
    )  # fmt: skip
