"""`bertbench lab clip`: compare clip modes by samples to target, on two real ranks or on many virtual ones."""

import argparse

from bertbench.commands import add_number, whole_numbers
from bertbench.common.errors import ConfigError
from lab.commands.study import add_folder_arguments, definition_of, run_study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds, the definition, the folder, and --ranks."""
    add_number(parser, "--seeds", "N", "runs of every arm (default: the definition's)")
    add_number(parser, "--parallel", "N", "trials at a time (default 2)")
    add_folder_arguments(parser, "clip")
    parser.add_argument(
        "--ranks", metavar="N,...",
        help="emulate these numbers of ranks in this process; the study's stopping rule sets the number of seeds",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    if arguments.ranks is None:
        return run_study(arguments, "clip", "clip", definition_of(arguments, "clip"), arguments.parallel or 2)
    ranks = sorted(set(whole_numbers("--ranks", arguments.ranks)))
    if arguments.seeds is not None or arguments.parallel is not None:
        raise ConfigError("--ranks runs in one process until its stopping rule ends it; drop --seeds and --parallel")
    definition = definition_of(arguments, "clip_ranks")
    known = definition.cells.get("ranks", {})
    cells = {"ranks": {str(number): known.get(str(number), {"ranks": number}) for number in ranks}}
    definition = definition.model_copy(update={"cells": cells})
    return run_study(arguments, "clip_ranks", "clip modes by number of ranks", definition)
