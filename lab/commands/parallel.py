"""`bertbench lab parallel`: compare data parallelism and pipelines on the same training, by time and goodput."""

import argparse

from bertbench.commands import aligned, check_at_least_one, emit, write_file
from bertbench.common.paths import runs_folder
from bertbench.common.progress import Progress
from bertbench.distributed.affinity import available_cores
from bertbench.machine.processor import processor
from lab.commands.study import add_folder_arguments
from lab.study.parallel import run_parallel
from lab.study.parallel_page import concluded, not_concluded, page_of, table_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the system, steps, seeds and the folder of the page."""
    parser.add_argument(
        "--system", default="cpu_layouts", metavar="S", help="system to train, layers in fours (default cpu_layouts)"
    )
    parser.add_argument("--steps", type=int, default=150, metavar="N", help="timed steps of a layout (default 150)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of every layout (default 1)")
    add_folder_arguments(parser, "study_parallel", defined=False)


def run(arguments: argparse.Namespace) -> int:
    """Train, write the page, and print a table with its conclusions."""
    check_at_least_one(arguments, "steps", "seeds")
    folder, cores = arguments.out or runs_folder() / "study_parallel", available_cores()
    with Progress() as progress:
        rows = run_parallel(arguments.system, arguments.steps, arguments.seeds, progress)
    folder.mkdir(parents=True, exist_ok=True)
    page = page_of(rows, arguments.system, f"{cores} cores of {processor()}", cores)
    write_file(folder / "study.html", page, "--out")
    head, *table = table_rows(rows)
    lines = [aligned(head, table)]
    for heading, points in (("may", concluded(rows, cores)), ("may not", not_concluded(rows, cores))):
        lines += [f"\nwhat {heading} be concluded:", *(f"- {point}" for point in points)]
    emit(arguments.json, rows, "\n".join(lines))
    return 0
