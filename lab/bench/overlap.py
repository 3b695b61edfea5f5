"""`lab overlap`: measure how much communication each clip mode leaves exposed, at three bandwidths.

Each step runs once with and once without the sum over the ranks; the difference is exposed communication. The clip mode
`before` sums after the backward pass and can't hide anything, so it is the reference: other modes hide as much as they
expose less. Two ranks on two virtual hosts take steps of a small BERT. At the middle bandwidth, the all-reduce of the
gradient takes about as long as the backward pass; it takes exactly as long at 1,650 Mbit/s on an EPYC, and at 2,250
Mbit/s on a Xeon.
"""

import argparse
import statistics
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import get_args
from unittest.mock import patch

import numpy as np
import torch
from torch import distributed

from bertbench.common.intervals import of_median
from bertbench.common.progress import Progress
from bertbench.common.tables import table_lines
from bertbench.config import System
from bertbench.config.optimizer import ClipMode
from bertbench.distributed.world import World
from bertbench.gradients.exchange import Exchange
from bertbench.loading.batch import synthetic
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.machine.processor import processor
from bertbench.model.shape import BertShape
from bertbench.training.whole_trainer import WholeTrainer
from lab.bench.harness import BenchResult, alternate, command, milliseconds
from lab.bench.network import limit_bandwidth, network_obstacle, on_two_hosts
from lab.bench.short_run import short_run

MODES: tuple[ClipMode, ...] = get_args(ClipMode)
# As in BERT-Large, a tenth of the parameters are embeddings, whose gradients are sent last and can't overlap.
_SHAPE = BertShape(2_048, 256, 6, 4, 1_024, 128, hidden_dropout=0.0, attention_dropout=0.0)
_BATCH = 4  # samples of one rank in a step
_RANKS = 2  # one for each virtual host
_SETTINGS = (
    "optimizer.name=adam", "optimizer.learning_rate=1e-4", "communication.bucket_mb=2",
    "clip.max_norm=0.1",  # small enough to clip always
)  # fmt: skip
_BANDWIDTHS = (600.0, 1_800.0, 5_400.0)  # megabits per second
_MEASURED = 5  # all-reduces without computation
_WARM_UP = 3  # rounds, which torch.compile and the allocator need
_COLUMNS = {
    "Mbit/s": "{0.bandwidth_mbit:,.0f}", "all-reduce ms": "{0.all_reduce_ms:,.0f}", "clip": "{0.mode}",
    "step ms": "{0.step_ms:,.0f}", "exposed ms": "{0.exposed_ms:,.0f}", "less than before": "{0.less_ms:+,.0f}",
    "at least": "{0.less_low_ms:+,.0f}", "at most": "{0.less_high_ms:+,.0f}", "exposes": "{0.verdict:s}",
    "hidden": "{0.hidden:.0%}",
}  # fmt: skip
_NULL: ClipMode = "before"

Steps = dict[tuple[ClipMode, bool], Callable[[int], float]]
"""For each clip mode, with and without sums: a function that returns the milliseconds of a step."""


@dataclass(frozen=True)
class Overlap:
    """The medians of one mode at one bandwidth, on rank 0."""

    mode: ClipMode
    bandwidth_mbit: float
    all_reduce_ms: float
    """The time of all buckets' all-reduces without computation."""
    step_ms: float
    exposed_ms: float
    """The time that the sum over the ranks adds to the step."""
    less_ms: float | None = None
    """The time that `before` exposes in the same round, minus this mode's; None for `before`."""
    less_low_ms: float | None = None
    less_high_ms: float | None = None
    """The intervals of all rows hold together at 95 % (sign test, Bonferroni); None if there are too few rounds."""
    hidden: float | None = None
    """`less_ms` as a share of `all_reduce_ms`."""
    verdict: str | None = None
    """Whether the mode exposes `less` or `more` than `before`, or `not decided`; None for `before`."""


def measure(arguments: argparse.Namespace, progress: Progress) -> BenchResult | None:
    """Take `rounds` steps of every mode at every bandwidth."""
    if reason := network_obstacle():
        progress.message(f"skipped: {reason}")
        return None
    buckets, rows = on_two_hosts(_on_rank, arguments.rounds)
    head = f"{sum(buckets):,} gradients in {len(buckets)} buckets, 2 ranks on {processor()}"
    return BenchResult(rows, [head, *table_lines(rows, _COLUMNS)])


def bench_system(mode: ClipMode, rounds: int) -> System:
    """Return the system whose steps are timed."""
    return short_run(_SHAPE, _BATCH, _RANKS, "cpu", rounds, (*_SETTINGS, f"clip.mode={mode}"))


def _on_rank(world: World, rounds: int) -> tuple[tuple[int, ...], list[Overlap]]:
    """Return the elements of the buckets, and a row for each mode and bandwidth."""
    trainers = {}
    for mode in MODES:
        trainers[mode] = WholeTrainer(bench_system(mode, rounds), world, seed=1)
    batch = synthetic(_BATCH, _SHAPE.max_positions, _SHAPE.vocab_size, torch.Generator().manual_seed(world.rank))
    part = Part(np.arange(_BATCH), 1 / len(batch.masked_at_M), 1 / _BATCH)
    loaded = LoadedPart(part, batch)

    def step(mode: ClipMode, summed: bool, number: int) -> float:
        with nullcontext() if summed else patch.object(Exchange, "sum", Exchange.gather):  # sends nothing
            world.barrier()
            return milliseconds(partial(trainers[mode].step, number, [loaded]))

    steps: Steps = {(mode, summed): partial(step, mode, summed) for mode, summed in product(MODES, (False, True))}
    alternate(steps, _WARM_UP)
    buckets, rows = trainers["none"].describe_step().bucket_elements, []
    for bandwidth in _BANDWIDTHS:
        limit_bandwidth(bandwidth)
        Progress(enabled=world.leads).message(f"{bandwidth:,.0f} Mbit/s: {rounds} steps of each mode")
        rows += _rows(world, steps, buckets, bandwidth, rounds)
    return buckets, rows


def _rows(world: World, steps: Steps, buckets: tuple[int, ...], bandwidth: float, rounds: int) -> list[Overlap]:
    """Return a row for each mode."""
    all_reduce_ms = round(_all_reduce_ms(world, buckets), 1)
    times = alternate(steps, rounds)
    exposed = {mode: np.subtract(times[mode, True], times[mode, False]) for mode in MODES}
    tests = (len(MODES) - 1) * len(_BANDWIDTHS)
    rows = []
    for mode in MODES:
        row = Overlap(
            mode=mode,
            bandwidth_mbit=bandwidth,
            all_reduce_ms=all_reduce_ms,
            step_ms=round(statistics.median(times[mode, True]), 1),
            exposed_ms=round(statistics.median(exposed[mode]), 1),
        )
        if mode != _NULL:
            less, low, high = of_median((exposed[_NULL] - exposed[mode]).tolist(), tests=tests)
            row = replace(
                row,
                less_ms=less,
                less_low_ms=low,
                less_high_ms=high,
                hidden=round(less / all_reduce_ms, 3),
                verdict=overlap_verdict(low, high),
            )
        rows.append(row)
    return rows


def overlap_verdict(less_low_ms: float | None, less_high_ms: float | None) -> str:
    """Return whether a mode exposes less than `before`, given the interval of the difference."""
    if less_low_ms is not None and less_low_ms > 0:
        return "less"
    return "more" if less_high_ms is not None and less_high_ms < 0 else "not decided"


def _all_reduce_ms(world: World, buckets: tuple[int, ...]) -> float:
    """Return the time of all buckets' all-reduces in sequence, without computation."""
    buffers = [torch.zeros(elements) for elements in buckets]

    def reduce(_: int) -> float:
        world.barrier()
        return milliseconds(lambda: [distributed.all_reduce(buffer) for buffer in buffers])

    return statistics.median(alternate({"sum": reduce}, _MEASURED)["sum"])


add_arguments, run = command(measure, ("--rounds", 50, "steps of each mode and bandwidth"))
