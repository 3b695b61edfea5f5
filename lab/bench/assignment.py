"""`lab assignment`: time real steps of two ranks on Wikipedia's lengths, dealt as drawn and dealt by cost.

Both methods do whole runs on the same global batches, in turns; a step lasts until its slowest rank is done. The result
gives the ratio of the times and what the cost model predicts.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertbench.common.progress import Progress
from bertbench.machine.processor import processor
from bertbench.model.shape import SHAPES
from bertbench.results.files import ResultFiles
from lab.bench.gpu.product import write_system
from lab.bench.harness import Found, command, in_turns, paired_ratio
from lab.bench.whole_run import ALIKE, steps_only, train_here

METHODS = ("none", "planned")
_TURNS = 3
_WARM_UP = 1  # steps
_TWO_RANKS = (
    *ALIKE, "launch.device=cpu", "launch.ranks_per_node=2", "hardware.accelerators_per_node=0",
    "data.equal_counts=false",
)  # fmt: skip


def measure(arguments: argparse.Namespace, progress: Progress) -> Found:
    """Take `steps` steps with each method on CPU ranks, `batch` samples a rank, in each of three turns."""
    batch, steps = arguments.batch, arguments.steps
    with TemporaryDirectory() as folder:
        system = write_system(Path(folder), SHAPES["small"], batch, _WARM_UP + steps)
        settings = (*_TWO_RANKS, *steps_only(_WARM_UP + steps, 2 * batch))
        arms = {method: partial(_steps, system, settings, arguments.seed, method) for method in METHODS}
        runs = in_turns(arms, _TURNS, progress=progress)
    taken = {method: [step for run in own for step in run] for method, own in runs.items()}
    none_ms, planned_ms = ([step["step_ms"] for step in own] for own in taken.values())
    none, planned = ([step["load_efficiency"] for step in own] for own in taken.values())
    measured, simulated = paired_ratio(none_ms, planned_ms), paired_ratio(planned, none).ratio
    step_ms = {"none": statistics.median(none_ms), "planned": statistics.median(planned_ms)}
    found = {
        "step_ms": step_ms, "ratio": measured.ratio, "ratio_low": measured.low, "ratio_high": measured.high,
        "simulated_ratio": simulated,
    }  # fmt: skip
    shown = ", ".join(f"{method} {own:,.0f} ms" for method, own in step_ms.items())
    head = f"small, 2 ranks x {batch} samples on {processor()}: {shown} a step"
    return Found(
        found, [head, f"none over planned, {len(none)} pairs: {measured}; the cost model predicts {simulated:.3f}"]
    )


def _steps(system: Path, settings: Sequence[str], seed: int, method: str, number: int) -> list[dict[str, Any]]:
    """Return the steps of one run after the first, which warms up."""
    log = system.with_name(f"{method}_{number}.txt")
    train_here(str(system), (*settings, f"data.balance={method}"), seed, log, to_target=False)
    lines = ResultFiles(log).metrics.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines][_WARM_UP:]


add_arguments, run = command(
    measure, ("--batch", 8, "samples a rank and step"), ("--steps", 15, "steps of each run"),
    seeds="weights and order",
)  # fmt: skip
