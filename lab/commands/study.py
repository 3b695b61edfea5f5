"""What `bertbench lab clip` does on real ranks: compare clip modes by samples to the target."""

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from bertbench.commands import check_at_least_one, emit, write_file
from bertbench.common.errors import ConfigError
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from bertbench.distributed.affinity import available_cores
from bertbench.machine.processor import processor
from bertbench.training.inputs import open_data
from lab.paths import STUDIES
from lab.study.compare import Difference, Summary, differences, run_study, summarize
from lab.study.definition import read_definition
from lab.study.page import page_of

_SEEDS, _PARALLEL = 5, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add seeds, the definition and the folder."""
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of every arm (default 5)")
    parser.add_argument("--parallel", type=int, metavar="N", help="trials at a time (default 2)")
    add_folder_arguments(parser, "study_clip")


def add_folder_arguments(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add what a study reads and the folder that it writes."""
    parser.add_argument(
        "--definition",
        type=Path,
        metavar="FILE",
        help="another study of this form (default: the project's own)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR",
        help=f"folder of its runs, journal and page; a stopped study resumes there (default: runs/{folder})",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the missing trials and print a table."""
    check_at_least_one(arguments, "seeds", "parallel")
    check_optuna()
    seeds, parallel = arguments.seeds or _SEEDS, arguments.parallel or _PARALLEL
    definition = read_definition(arguments.definition or STUDIES / "clip.json")
    for arm in definition.arms:
        open_data(definition.trial_system(arm, {}))  # report bad data before hours of trials
    folder = arguments.out or runs_folder() / "study_clip"
    with Progress() as progress:
        rows = run_study(definition, folder, seeds, parallel, progress)
        summaries, found = summarize(definition, folder, rows), differences(definition, rows)
        machine = f"{parallel} trials at a time on {available_cores()} cores of {processor()}"
        page = page_of("Study: clip", definition, folder, rows, summaries, found, machine)
    write_file(folder / "study.html", page, "--out")
    emit(arguments.json, rows, _table(summaries, found))
    return 0


def check_optuna() -> None:
    """Raise ConfigError if Optuna, an optional extra, is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("studies tune with Optuna, which is not installed; pip install 'bertbench[study]'")


def _table(summaries: Sequence[Summary], found: Sequence[Difference]) -> str:
    names = list(summaries[0].values)
    lines = [f"{'arm':<12}" + "".join(f"{name:>26}" for name in names) + "  reached   samples     ±95 %  steps clipped"]
    for one in summaries:
        values = "".join(f"{one.values[name]:>26.3g}" for name in names)
        mean = "-" if one.mean is None else f"{one.mean:,.0f}"
        half = "-" if one.half_interval is None else f"{one.half_interval:,.0f}"
        reached = f"{one.reached}/{one.seeds}"
        lines.append(f"{one.arm:<12}{values}{reached:>9}{mean:>10}{half:>10}{one.clipped_steps:>15.0%}")
    lines += [
        f"{one.arm} against {one.against}: {one.mean:+,.0f} samples, {one.low:+,.0f} to {one.high:+,.0f}: {one.verdict}"
        for one in found
    ]
    return "\n".join(lines)
