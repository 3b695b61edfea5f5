"""`bertbench lab parallel`: compare data parallelism and pipelines on the same training, by time."""

import argparse
from dataclasses import asdict
from functools import partial

from bertbench.commands import write_file
from bertbench.common.progress import Progress
from bertbench.distributed.affinity import available_cores
from bertbench.machine.processor import processor
from bertbench.machine.provenance import provenance
from lab.bench.harness import Found, command, option, table
from lab.commands.study import add_folder_arguments, study_folder
from lab.record_page import record_page
from lab.study.parallel import PARTS, medians, run_parallel

_COLUMNS = {
    "layout": "{0.layout}", "ranks": "{0.ranks:d}", "runtime s": "{0.runtime_s:.1f}",
    "samples/s": "{0.samples_per_s:.0f}", "validation loss": "{0.validation_loss:.4f}", "accuracy": "{0.accuracy:.2%}",
    "least busy rank": "{0.least_busy:.0%}", "MFU": "{0.model_flop_utilisation:.0%}",
}  # fmt: skip


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Train in every layout, and write the page."""
    folder = study_folder(arguments, "parallel")
    rows = run_parallel(arguments.system, arguments.steps, arguments.seeds, progress)
    by_layout = medians(rows)
    head = (
        f"{arguments.system} at equal global batch, each step in {PARTS} parts, one thread a rank; medians of "
        f"{arguments.seeds} seeds on {available_cores()} cores of {processor()}. Ranks communicate through main memory."
    )
    folder.mkdir(parents=True, exist_ok=True)
    content = {"method": head, "layouts": [asdict(row) for row in by_layout], "origin": provenance()}
    write_file(folder / "study.html", record_page("Study: parallel layouts", content), "--out")
    return Found(rows, [head, *table(by_layout, _COLUMNS)])


add_arguments, run = command(
    measure, ("--steps", 150, "timed steps of a layout"), ("--seeds", 1, "runs of every layout"),
    more=[
        option(
            "--system", default="cpu_layouts", metavar="S",
            help="system to train, layers in fours (default cpu_layouts)",
        ),
        partial(add_folder_arguments, name="parallel", defined=False),
    ],
)  # fmt: skip
