"""`bertbench lab clip`: compare clip modes by samples to target, on two real ranks or on many virtual ones."""

import argparse

from bertbench.commands import aligned, emit, whole_numbers, write_file
from bertbench.common.errors import ConfigError
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.machine.provenance import provenance
from lab.commands import study
from lab.paths import STUDIES
from lab.study.definition import read_study
from lab.study.ranks import Study
from lab.study.ranks_definition import RanksDefinition
from lab.study.ranks_page import ARM_HEAD, TABLE_HEAD, arm_rows, page_of, table_rows
from lab.study.ranks_trial import run_trial


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the study on real ranks, and --ranks."""
    study.add_arguments(parser)
    parser.add_argument(
        "--ranks", metavar="N,...",
        help="emulate these numbers of ranks in this process; the study's stopping rule sets the number of seeds",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    if arguments.ranks is None:
        return study.run(arguments)
    ranks = tuple(sorted(set(whole_numbers("--ranks", arguments.ranks))))
    if arguments.seeds is not None or arguments.parallel is not None:
        raise ConfigError("--ranks runs in one process until its stopping rule ends it; drop --seeds and --parallel")
    study.check_optuna()
    definition = read_study(arguments.definition or STUDIES / "clip_ranks.json", RanksDefinition)
    folder = arguments.out or runs_folder() / "study_clip_ranks"
    with Progress() as progress:
        trials = Study(definition, ranks, folder, run_trial, progress)
        found = trials.compare()
    page = page_of(definition, trials, found, f"one core of {processor()}")
    write_file(folder / "study.html", page, "--out")
    content = {
        "definition": definition.model_dump(mode="json"),
        "origin": provenance(),
        **found._asdict(),
        "tuned": [{"arm": one.arm.name, **one.values._asdict()} for one in found.tuned],
    }
    tables = (
        aligned(ARM_HEAD, arm_rows(found.tuned, found.rows)),
        f"each arm at its own values\n{aligned(TABLE_HEAD, table_rows(found.comparisons))}",
        f"both at the first arm's values\n{aligned(TABLE_HEAD, table_rows(found.at_equal_values))}",
    )
    emit(arguments.json, content, "\n\n".join(tables))
    return 0
