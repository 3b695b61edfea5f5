"""`bertbench lab clip`: compare clip modes by samples to target, on two real ranks or on many virtual ones."""

import argparse

from bertbench.commands import whole_numbers
from lab.commands.study import add_study_arguments, definition_of, run_study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds, the definition, the folder, and --ranks."""
    add_study_arguments(parser, "clip")
    parser.add_argument("--ranks", metavar="N,...", help="emulate these numbers of ranks in this process")


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    if arguments.ranks is None:
        return run_study(arguments, "clip", definition_of(arguments, "clip"))
    definition = definition_of(arguments, "clip_ranks")
    known = definition.cells.get("ranks", {})
    ranks = sorted(set(whole_numbers("--ranks", arguments.ranks)))
    cells = {"ranks": {str(number): known.get(str(number), {"ranks": number}) for number in ranks}}
    definition = definition.model_copy(update={"cells": cells})
    return run_study(arguments, "clip_ranks", definition)
