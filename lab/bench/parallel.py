"""`lab parallel`: train one model in several layouts at equal global batch, with gloo ranks on this machine, by time.

Every layout computes a step in the same number of parts (Megatron's microbatches): a single rank takes them in turn,
data-parallel ranks share them. Runs are whole, and their ranks share the cores. Layouts with more ranks than this
machine has cores are left out: there ranks would share a core, and times would say nothing.
"""

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

from bertbench.common.progress import Progress
from bertbench.config import load_system
from bertbench.distributed.cores import available_cores
from bertbench.loading.inputs import open_data
from bertbench.machine.processor import processor
from lab.bench.harness import BenchResult, command, in_turns, option, paired_ratio, table_lines
from lab.bench.whole_run import ALIKE, Trained, steps_only, train_here

_PARTS = 8  # in a step: twice the longest pipeline, so that the bubble is 3/11 of the time and doesn't hide all else
_LAYOUTS = {"data 1": (1, 1), "data 2": (2, 1), "data 4": (4, 1), "pipeline 2": (1, 2), "pipeline 4": (1, 4)}
_COLUMNS = {"layout": "{0[0]}", "samples/s": "{0[1]:,.0f}", "over one rank": "{0[2]}"}


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Train in every layout that this machine has cores for, once per seed.

    Rates are of whole runs without their evaluation, accuracies of the evaluation at the end.
    """
    system = load_system(arguments.system)
    open_data(system)  # report bad data before ranks start
    alike = (*ALIKE, *steps_only(arguments.steps, system.global_batch_size))
    with tempfile.TemporaryDirectory() as folder:

        def train(layout: str, data: int, pipeline: int, number: int) -> Trained:
            split = (
                f"launch.ranks_per_node={data * pipeline}", f"parallel.pipeline={pipeline}",
                f"data.gradient_accumulation_steps={_PARTS // data if pipeline == 1 else 1}",
                f"parallel.microbatches={_PARTS if pipeline > 1 else 1}",
            )  # fmt: skip
            log = Path(folder) / f"{layout}_{number}.txt"
            return train_here(arguments.system, (*alike, *split), number + 1, log, to_target=False)

        layouts = {
            layout: partial(train, layout, data, pipeline)
            for layout, (data, pipeline) in _LAYOUTS.items()
            if data * pipeline <= available_cores()
        }
        runs = in_turns(layouts, arguments.seeds, progress=progress)
    rows = []
    rates: dict[str, list[float]] = {}
    for layout, seeds in runs.items():
        rates[layout] = [run.rate for run in seeds]
        for seed, run in enumerate(seeds, start=1):
            _, accuracy = run.course[-1]
            rows.append({"layout": layout, "seed": seed, "samples_per_s": round(run.rate, 1), "accuracy": accuracy})
    one_rank = rates["data 1"]
    shown = [(name, statistics.median(taken), paired_ratio(taken, one_rank)) for name, taken in rates.items()]
    head = (
        f"{arguments.system} at equal global batch, each step in {_PARTS} parts; medians of {arguments.seeds} seeds on "
        f"{available_cores()} cores of {processor()}. Ranks communicate through main memory."
    )
    return BenchResult(rows, [head, *table_lines(shown, _COLUMNS)])


add_arguments, run = command(
    measure, ("--steps", 150, "timed steps of a layout"), ("--seeds", 1, "runs of every layout"),
    more=[
        option(
            "--system", default="cpu_layouts", metavar="S",
            help="system to train, layers in fours (default cpu_layouts)",
        ),
    ],
)  # fmt: skip
