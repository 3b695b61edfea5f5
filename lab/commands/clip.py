"""`bertbench lab clip`: compare clip modes by samples to target, on two real ranks or on many virtual ones."""

import argparse

from bertbench.commands import check_at_least_one, whole_numbers
from bertbench.common.errors import ConfigError
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from bertbench.distributed.affinity import available_cores
from bertbench.machine.processor import processor
from bertbench.training.inputs import open_data
from lab.commands.study import add_folder_arguments, check_optuna, record_of, report
from lab.paths import STUDIES
from lab.study.clip import clip_study, read_definition
from lab.study.clip_ranks import RanksDefinition, at_equal_values, by_ranks, content_of, ranks_study
from lab.study.definition import read_study

_SEEDS, _PARALLEL = 5, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds, the definition, the folder, and --ranks."""
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of every arm (default 5)")
    parser.add_argument("--parallel", type=int, metavar="N", help="trials at a time (default 2)")
    add_folder_arguments(parser, "study_clip")
    parser.add_argument(
        "--ranks", metavar="N,...",
        help="emulate these numbers of ranks in this process; the study's stopping rule sets the number of seeds",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    check_at_least_one(arguments, "seeds", "parallel")
    check_optuna()
    if arguments.ranks is None:
        _real_ranks(arguments)
    else:
        _virtual_ranks(arguments)
    return 0


def _real_ranks(arguments: argparse.Namespace) -> None:
    seeds, parallel = arguments.seeds or _SEEDS, arguments.parallel or _PARALLEL
    definition = read_definition(arguments.definition or STUDIES / "clip.json")
    systems = [definition.trial_system(arm, {}) for arm in definition.arms]
    for system in systems:
        open_data(system)  # report bad data before hours of trials
    with Progress() as progress:
        study = clip_study(definition, arguments.out or runs_folder() / "study_clip", parallel, progress)
        rows = study.rows(range(1, seeds + 1))
    lines = (
        definition.question,
        f"{definition.system}: samples until masked-LM accuracy {systems[0].evaluation.target}, differences seed by "
        f"seed. Each arm was tuned with {definition.tuning_trials} runs; {parallel} trials at a time on "
        f"{available_cores()} cores of {processor()}.",
    )
    report(arguments, "Study: clip", lines, study, rows, content=rows)


def _virtual_ranks(arguments: argparse.Namespace) -> None:
    ranks = tuple(sorted(set(whole_numbers("--ranks", arguments.ranks))))
    if arguments.seeds is not None or arguments.parallel is not None:
        raise ConfigError("--ranks runs in one process until its stopping rule ends it; drop --seeds and --parallel")
    definition = read_study(arguments.definition or STUDIES / "clip_ranks.json", RanksDefinition)
    with Progress() as progress:
        study = ranks_study(definition, ranks, arguments.out or runs_folder() / "study_clip_ranks", progress)
        rows = study.rows_until(definition.stopping)
        equal_rows, equal = at_equal_values(study, rows)
    own, (tuning, stopping) = study.comparisons(rows), (definition.tuning, definition.stopping)
    content = record_of(study, rows, content_of(definition, study, own)) | {
        "tuned": [{"arm": arm.name, **study.values(arm.name)} for arm in study.arms],
        "equal_rows": equal_rows,
        "at_equal_values": content_of(definition, study, equal),
    }
    lines = (
        definition.question,
        f"Samples until masked accuracy {definition.evaluation.target}, global batch {definition.global_batch_size}, "
        f"ranks in one process. Each arm was tuned with {tuning.trials} runs; its {tuning.finalists} best ran "
        f"{tuning.finalist_seeds} more times. Seeds are added until each half-width is at most "
        f"{stopping.half_width:.0%} of the mean, from {stopping.first_look} to {stopping.max_seeds}; one core of "
        f"{processor()}.",
    )
    tables = {"each arm at its own values": own, "both at the first arm's values": equal}
    sections = [by_ranks(heading.capitalize(), study, pairs, stopping.half_width) for heading, pairs in tables.items()]
    title = "Study: clip modes by number of ranks"
    report(arguments, title, lines, study, rows, *sections, content=content, tables=tables)
