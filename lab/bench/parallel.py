"""`lab parallel`: train one model in several layouts at equal global batch, with gloo ranks on this machine, by time.

Every layout computes a step in the same number of parts (Megatron's microbatches): a single rank takes them in turn,
data-parallel ranks share them. Layouts with more ranks than this machine has cores are left out: there ranks would
share cores, and times would say nothing.
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from bertbench.common.errors import ConfigError
from bertbench.common.progress import Progress
from bertbench.config import System, load_system
from bertbench.distributed.affinity import available_cores
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.inputs import open_data
from bertbench.machine.processor import processor
from lab.bench.harness import Found, command, in_turns, option, paired_ratio, table
from lab.bench.whole_run import ALIKE, Trained, read_run, steps_only, train_quietly

_PARTS = 8  # in a step: twice the longest pipeline, so that the bubble is 3/8 of the time and doesn't hide all else
_LAYOUTS = {"data 1": (1, 1), "data 2": (2, 1), "data 4": (4, 1), "pipeline 2": (1, 2), "pipeline 4": (1, 4)}
_COLUMNS = {"layout": "{0[0]}", "ranks": "{0[1]:d}", "samples/s": "{0[2]:,.0f}", "over one rank": "{0[3]}"}


@dataclass(frozen=True)
class Row:
    """One layout with one seed."""

    layout: str
    ranks: int
    seed: int
    samples_per_s: float
    """Over the whole run, without its evaluation."""
    accuracy: float
    """Of the evaluation at the end."""


def layouts_of(name: str, steps: int) -> dict[str, System]:
    """Return a system in every layout that this machine has cores for, for `steps` steps.

    Raises ConfigError if the system doesn't fit one of them.
    """
    batch, systems = load_system(name).global_batch_size, {}
    for layout, (data, pipeline) in _LAYOUTS.items():
        if data * pipeline > available_cores():
            continue
        accumulated, microbatches = (_PARTS // data, 1) if pipeline == 1 else (1, _PARTS)
        settings = {
            "hardware.number_of_nodes": 1, "launch.device": "cpu", "launch.ranks_per_node": data * pipeline,
            "data.global_batch_size": batch, "data.local_batch": None,
            "data.gradient_accumulation_steps": accumulated, "parallel.tensor": 1, "parallel.pipeline": pipeline,
            "parallel.microbatches": microbatches, "parallel.schedule": "1f1b", "parallel.virtual_stages": 1,
            "parallel.fully_shard": False, "parallel.sequence": False,
        }  # fmt: skip
        given = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        try:
            systems[layout] = load_system(name, (*ALIKE, *given, *steps_only(steps, batch)))
        except ConfigError as error:
            raise ConfigError(f"{layout}: {error}") from error
    return systems


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Train in every layout, once per seed."""
    systems = layouts_of(arguments.system, arguments.steps)
    open_data(systems["data 1"])  # report bad data before ranks start
    with tempfile.TemporaryDirectory() as folder:
        arms = {layout: partial(_trained, system, Path(folder), layout) for layout, system in systems.items()}
        runs = in_turns(arms, arguments.seeds, progress=progress)
    rows = [
        Row(layout, systems[layout].world_size, seed, round(run.rate, 1), run.course[-1][1])
        for layout, own in runs.items()
        for seed, run in enumerate(own, start=1)
    ]
    rates = {layout: [run.rate for run in own] for layout, own in runs.items()}
    shown = [
        (layout, systems[layout].world_size, statistics.median(own), paired_ratio(own, rates["data 1"]))
        for layout, own in rates.items()
    ]
    head = (
        f"{arguments.system} at equal global batch, each step in {_PARTS} parts, one thread a rank; medians of "
        f"{arguments.seeds} seeds on {available_cores()} cores of {processor()}. Ranks communicate through main memory."
    )
    return Found(rows, [head, *table(shown, _COLUMNS)])


def _trained(system: System, folder: Path, layout: str, number: int) -> Trained:
    log = folder / f"{layout}_{number}.txt"
    on_ranks(system.world_size, _on_rank, system, number + 1, log)
    return read_run(log, to_target=False)


def _on_rank(world: World, system: System, seed: int, log: Path) -> None:
    torch.set_num_threads(1)  # every layout gets one core a rank
    train_quietly(world, system, seed, log)


add_arguments, run = command(
    measure, ("--steps", 150, "timed steps of a layout"), ("--seeds", 1, "runs of every layout"),
    more=[
        option(
            "--system", default="cpu_layouts", metavar="S",
            help="system to train, layers in fours (default cpu_layouts)",
        ),
    ],
)  # fmt: skip
