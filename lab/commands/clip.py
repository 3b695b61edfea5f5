"""`bertbench lab clip`: compare clip modes by samples to the target, on virtual ranks."""

import argparse

from bertbench.cli.arguments import whole_numbers
from lab.commands.study import add_study_arguments, definition_of, run_study

_NAME = "clip_ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for seeds, definition and folder, and --ranks."""
    add_study_arguments(parser, _NAME)
    parser.add_argument("--ranks", metavar="N,...", help="emulate these numbers of ranks (default: the definition's)")


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    definition = definition_of(arguments, _NAME)
    if arguments.ranks is not None:
        known = definition.cells.get("ranks", {})
        ranks = sorted(set(whole_numbers("--ranks", arguments.ranks)))
        cells = {"ranks": {str(number): known.get(str(number), {"ranks": number}) for number in ranks}}
        definition = definition.model_copy(update={"cells": cells})
    return run_study(arguments, _NAME, definition)
