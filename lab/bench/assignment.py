"""`lab assignment`: time real steps of two ranks on Wikipedia's lengths, assigned as drawn and assigned by cost.

Each method does whole runs on the same global batches; the runs are interleaved. A step lasts until its slowest rank
has finished. The result contains the ratio of the times, and the ratio that the cost model predicts.
"""

import argparse
import statistics
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.model.shape import SHAPES
from lab.bench.gpu.product import write_system
from lab.bench.harness import BenchResult, alternate, command, paired_ratio
from lab.bench.whole_run import ALIKE, steps_here, steps_only

METHODS = {
    "none": ("data.balance=none",),
    "planned": ("data.balance=planned", "data.equal_counts=false"),
}
"""The settings of each method."""
_ROUNDS = 3
_WARM_UP = 1  # steps
_TWO_RANKS = (*ALIKE, "launch.device=cpu", "launch.ranks_per_node=2", "hardware.accelerators_per_node=0")


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult:
    """Take `steps` steps with each method on CPU ranks, with `batch` samples per rank, in each of three rounds."""
    batch, steps = arguments.batch, arguments.steps
    with TemporaryDirectory() as folder:
        system = write_system(Path(folder), SHAPES["small"], batch, _WARM_UP + steps)
        settings = (*_TWO_RANKS, *steps_only(_WARM_UP + steps, 2 * batch))
        runs_of = {method: partial(_steps, system, settings, arguments.seed, method) for method in METHODS}
        runs = alternate(runs_of, _ROUNDS, progress=progress)
    none = [*chain.from_iterable(runs["none"])]
    planned = [*chain.from_iterable(runs["planned"])]
    measured = paired_ratio(_each(none, "step_ms"), _each(planned, "step_ms"))
    simulated = paired_ratio(_each(planned, "load_efficiency"), _each(none, "load_efficiency")).value
    step_ms = {
        "none": statistics.median(_each(none, "step_ms")),
        "planned": statistics.median(_each(planned, "step_ms")),
    }
    content = {
        "step_ms": step_ms, "ratio": measured.value, "ratio_low": measured.low, "ratio_high": measured.high,
        "simulated_ratio": simulated,
    }  # fmt: skip
    shown = ", ".join(f"{method} {milliseconds:,.0f} ms" for method, milliseconds in step_ms.items())
    return BenchResult(
        content,
        [
            f"small, 2 ranks x {batch} samples on {processor()}: {shown} per step",
            f"time with none / with planned, {len(none)} pairs: {measured}; the cost model predicts {simulated:.3f}",
        ],
    )


def _each(steps: Sequence[dict[str, Any]], field: str) -> list[float]:
    return [step[field] for step in steps]


def _steps(system: Path, settings: Sequence[str], seed: int, method: str, number: int) -> list[dict[str, Any]]:
    """Return the steps of one run, without the first, which warms up."""
    log = system.with_name(f"{method}_{number}.txt")
    return steps_here(str(system), (*settings, *METHODS[method]), seed, log)[_WARM_UP:]


add_arguments, run = command(
    measure, ("--batch", 8, "samples per rank and step"), ("--steps", 15, "steps of each run"),
    seeds="weights and order",
)  # fmt: skip
