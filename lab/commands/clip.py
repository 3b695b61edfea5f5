"""`bertbench lab clip`: compare clip modes by samples to target, on two real ranks or on many virtual ones."""

import argparse

from bertbench.commands import check_at_least_one, whole_numbers
from bertbench.common.errors import ConfigError
from bertbench.common.paths import runs_folder
from lab.commands.study import add_folder_arguments, run_study, with_system
from lab.paths import STUDIES
from lab.study.definition import read_definition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds, the definition, the folder, and --ranks."""
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of every arm (default: the definition's)")
    parser.add_argument("--parallel", type=int, metavar="N", help="trials at a time (default 2)")
    add_folder_arguments(parser, "study_clip")
    parser.add_argument(
        "--ranks", metavar="N,...",
        help="emulate these numbers of ranks in this process; the study's stopping rule sets the number of seeds",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    check_at_least_one(arguments, "parallel")
    if arguments.ranks is None:
        path = arguments.definition or STUDIES / "clip.json"
        definition, folder = with_system(path, read_definition(path)), arguments.out or runs_folder() / "study_clip"
        run_study(arguments, "clip", definition, folder, arguments.parallel or 2)
        return 0
    ranks = sorted(set(whole_numbers("--ranks", arguments.ranks)))
    if arguments.seeds is not None or arguments.parallel is not None:
        raise ConfigError("--ranks runs in one process until its stopping rule ends it; drop --seeds and --parallel")
    definition = read_definition(arguments.definition or STUDIES / "clip_ranks.json")
    known = definition.cells.get("ranks", {})
    cells = {"ranks": {str(number): known.get(str(number), {"ranks": number}) for number in ranks}}
    definition = definition.model_copy(update={"cells": cells})
    run_study(
        arguments, "clip modes by number of ranks", definition, arguments.out or runs_folder() / "study_clip_ranks"
    )
    return 0
