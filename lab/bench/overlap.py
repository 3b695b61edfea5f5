"""`lab overlap`: measure how much communication each clip mode leaves exposed, at three bandwidths.

Two ranks on two virtual hosts take real steps. Each step runs with the sum over the ranks and without; the difference
is exposed communication. At the middle bandwidth the all-reduce of the gradient lasts as long as the backward pass. On
several GPUs kernel traces tell it (trace.py).
"""

import argparse
import statistics
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import distributed

from bertbench.common.progress import Progress
from bertbench.config.optimizer import ClipMode
from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.machine.processor import processor
from bertbench.model.shape import BertShape
from lab.bench.clipped_step import MODES, ClippedStep
from lab.bench.harness import Found, command, in_turns, milliseconds, table
from lab.bench.network import limit_bandwidth, obstacle, on_two_hosts
from lab.bench.trace import measure_traces

# As in BERT-Large, a tenth of the parameters are embeddings, whose gradients are sent last and can't overlap.
_SHAPE = BertShape(2_048, 256, 6, 4, 1_024, 128, hidden_dropout=0.0, attention_dropout=0.0)
_BUCKET_MB = 2.0
_FACTORS = (1 / 3, 1.0, 3.0)
_MEASURED = 5  # backward passes and all-reduces that set the middle bandwidth
_COLUMNS = {
    "Mbit/s": "{0[1].bandwidth_mbit:,.0f}", "all-reduce ms": "{0[0]:,.0f}", "clip": "{0[1].mode}",
    "step ms": "{0[1].step_ms:,.0f}", "exposed ms": "{0[1].exposed_ms:,.0f}", "hidden": "{0[1].hidden:.0%}",
}  # fmt: skip


@dataclass(frozen=True)
class Overlap:
    """Medians of one mode at one bandwidth, on rank 0."""

    mode: ClipMode
    bandwidth_mbit: float
    step_ms: float
    exposed_ms: float
    """Time that the sum over the ranks adds to the step."""
    hidden: float
    """Share of the all-reduce's time that overlaps the backward pass."""


def measure(arguments: argparse.Namespace, progress: Progress) -> Found | None:
    """Take `rounds` steps of every mode, with `batch` samples a rank, at every bandwidth or on all GPUs."""
    if torch.cuda.device_count() > 1:
        return measure_traces(arguments.rounds, arguments.batch)
    if reason := obstacle():
        progress.message(f"skipped: {reason}")
        return None
    backward_ms, buckets, rows = on_two_hosts(_on_rank, arguments.rounds, arguments.batch)
    head = (
        f"{sum(buckets):,} gradients in {len(buckets)} buckets, two ranks on {processor()}, backward pass "
        f"{backward_ms:,.0f} ms"
    )
    return Found([row for _, row in rows], [head, *table(rows, _COLUMNS)])


def _on_rank(world: World, rounds: int, size: int) -> tuple[float, tuple[int, ...], list[tuple[float, Overlap]]]:
    """Return the backward pass's time, the buckets, and rows, each with the time of all buckets' all-reduces alone."""
    progress = Progress(enabled=world.leads)
    arms = {mode: ClippedStep(mode, world.size, _SHAPE, world.device, "fp32", _BUCKET_MB) for mode in MODES}
    batch = synthetic(size, _SHAPE.max_positions, _SHAPE.vocab_size, torch.Generator().manual_seed(world.rank))

    def step(mode: ClipMode, summed: bool, _: int) -> tuple[float, float]:
        arms[mode].sum.on = summed
        world.barrier()
        return arms[mode].take(batch)

    steps = {(mode, summed): partial(step, mode, summed) for mode, summed in product(MODES, (False, True))}
    in_turns(steps, 1)  # the first makes memory
    backward_ms = statistics.median(step("none", False, 0)[1] for _ in range(_MEASURED))
    buckets = arms["none"].reducer.elements
    middle = _middle_bandwidth(world, buckets, backward_ms)
    rows = []
    for bandwidth in (float(f"{factor * middle:.3g}") for factor in _FACTORS):
        limit_bandwidth(bandwidth)
        all_reduce_ms = _all_reduce_ms(world, buckets)
        progress.message(
            f"{bandwidth:,.0f} Mbit/s: the all-reduce lasts {all_reduce_ms:,.0f} ms, the backward pass "
            f"{backward_ms:,.0f} ms; {rounds} steps of each mode"
        )
        times = in_turns(steps, rounds)
        for mode in MODES:
            summed, alone = ([taken for taken, _ in times[mode, summed]] for summed in (True, False))
            exposed = max(0.0, statistics.median(np.subtract(summed, alone)))
            hidden = 1 - min(1.0, exposed / all_reduce_ms)
            row = Overlap(mode, bandwidth, round(statistics.median(summed), 1), round(exposed, 1), round(hidden, 3))
            rows.append((all_reduce_ms, row))
    return backward_ms, buckets, rows


def _middle_bandwidth(world: World, buckets: tuple[int, ...], backward_ms: float) -> float:
    """Return the megabits a second at which the all-reduce lasts `backward_ms`, the same on every rank."""
    backward_ms = world.sum(torch.tensor(backward_ms)).item() / world.size
    # a ring over R ranks sends 2 (R - 1) / R of the bytes
    wanted = 4 * sum(buckets) * 2 * (world.size - 1) / world.size * 8 / (backward_ms * 1e3)
    limit_bandwidth(wanted)
    taken = world.sum(torch.tensor(_all_reduce_ms(world, buckets))).item() / world.size
    return wanted * taken / backward_ms


def _all_reduce_ms(world: World, buckets: tuple[int, ...]) -> float:
    """Return the time of all buckets' all-reduces in sequence, without computation."""
    buffers = [torch.zeros(elements) for elements in buckets]

    def reduce(_: int) -> float:
        world.barrier()
        return milliseconds(lambda: [distributed.all_reduce(buffer) for buffer in buffers])

    return statistics.median(in_turns({"sum": reduce}, _MEASURED)["sum"])


add_arguments, run = command(
    measure, ("--rounds", 7, "steps of each mode and bandwidth"), ("--batch", 4, "samples a rank and step")
)
