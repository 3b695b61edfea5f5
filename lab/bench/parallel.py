"""`lab parallel`: compare the speed of layouts with the same global batch, on gloo ranks of this machine.

Every layout computes a step in the same number of parts (Megatron's microbatches): a single rank computes them one
after the other, data-parallel ranks divide them. The runs are whole runs, whose ranks share the cores. Layouts with
more ranks than this machine has cores are left out, because times are meaningless if ranks share a core.
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
from lab.bench.harness import BenchResult, alternate, command, option, paired_ratio, table_lines
from lab.bench.whole_run import ALIKE, Trained, steps_only, train_here

_PARTS = 8  # of a step: twice the longest pipeline; the bubble is 3/11 of the time and doesn't hide everything else
_LAYOUTS = {"data 1": (1, 1), "data 2": (2, 1), "data 4": (4, 1), "pipeline 2": (1, 2), "pipeline 4": (1, 4)}
_COLUMNS = {"layout": "{0[0]}", "samples/s": "{0[1]:,.0f}", "speed / one rank": "{0[2]}"}


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Train in every layout for which this machine has enough cores, once for each seed.

    Rates are those of whole runs without the evaluation; accuracies are from the evaluation at the end.
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
        runs = alternate(layouts, arguments.seeds, progress=progress)
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
        f"{arguments.system}, the same global batch, each step in {_PARTS} parts; medians of {arguments.seeds} seeds "
        f"on {available_cores()} cores of {processor()}. Ranks communicate through main memory."
    )
    return BenchResult(rows, [head, *table_lines(shown, _COLUMNS)])


add_arguments, run = command(
    measure, ("--steps", 150, "timed steps of a layout"), ("--seeds", 1, "runs of every layout"),
    more=[
        option(
            "--system", default="cpu_layouts", metavar="S",
            help="system to train; its number of layers must be a multiple of 4 (default cpu_layouts)",
        ),
    ],
)  # fmt: skip
