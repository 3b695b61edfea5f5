"""Train on made-up text, and compare optimizers, and steps that are recorded as CUDA graphs, with plain trainers."""

import statistics
import time
from functools import partial
from importlib import import_module

import numpy as np

from bertbench.common.phase_clock import wait_for_device
from bertbench.config import System
from bertbench.data.store.columns import Columns
from bertbench.distributed.world import World
from bertbench.loading.batch import Batch, batch_of
from bertbench.loading.bins import Bins
from bertbench.loading.filler import BatchSize, Fill, fill_of, filled_to_size, size_of
from bertbench.training.graph_trainer import GraphTrainer
from bertbench.training.whole_trainer import WholeTrainer
from lab.bench.gpu.testbed import Row, Testbed, Unfit, attempt, print_row, testbed
from lab.bench.gpu.text import learnable, part_of
from lab.bench.short_run import short_run
from lab.spawn import on_ranks

_SEED = 7
_PLAIN = (
    "optimizer.name=lamb", "optimizer.impl=torch", "precision.compute=fp32", "compute.compile=none", "clip.mode=after",
    "optimizer.learning_rate=0.01",  # in LAMB, a hundredth of a matrix's norm in each step, enough to learn
    "data.equal_counts=true",
)  # fmt: skip
_TOLERANCE = 1e-4  # share of a loss, for fp32 sums in another order over a few steps
_HALF_TOLERANCE = 0.05  # share of a loss, for 16 bits
_RECORDED_TOLERANCE = 2e-3  # share of a loss, for bf16 compared with compiled steps

Choice = tuple[str, ...]
"""The settings, as in --set, in which a trainer differs from a plain one."""


def system_of_choice(choice: Choice, here: Testbed, ranks: int) -> System:
    """Return the system of a run with the settings of `choice`."""
    return short_run(here.shape, here.batch, ranks, here.device, here.steps, (*_PLAIN, *choice))


def choices(device: str) -> list[Choice]:
    """Return the trainers to compare with plain ones: those with kernels or collectives that CPUs don't have."""
    sharded, triton = "optimizer.sharded=true", "optimizer.impl=triton"
    wanted: list[Choice] = [(sharded,)]
    if device == "cuda":  # on a CPU there is no Triton, and losses aren't scaled
        wanted += [
            (triton,), (triton, sharded), ("optimizer.name=adam", triton), ("optimizer.impl=apex",),
            ("clip.mode=bucket", "precision.compute=fp16"),
        ]  # fmt: skip
    return wanted


def recorded() -> list[Choice]:
    """Return the trainers whose steps are recorded."""
    graphs = "precision.compute=bf16", "compute.compile=graphs"
    triton = "optimizer.impl=triton"
    parts = "data.gradient_accumulation_steps=2"
    sharded = "optimizer.sharded=true"
    return [graphs, (*graphs, triton), (*graphs, parts), (*graphs, sharded), ("clip.mode=bucket", *graphs)]


def capture() -> None:
    """Record and replay steps with each optimizer, on one rank and on all. Losses must equal those of plain steps."""
    here = testbed()
    if here.device != "cuda":
        raise Unfit("needs a GPU")
    for choice in recorded():
        plain = *plain_of(choice), "precision.compute=bf16", "compute.compile=default"
        compare_choices(here, plain, choice, _RECORDED_TOLERANCE)


def optimizers() -> None:
    """Take the same steps with each choice, on one rank and on all. Losses must agree with those of torch in fp32."""
    here = testbed()
    for choice in choices(here.device):
        system = system_of_choice(choice, here, 1)
        if system.optimizer.impl != "apex" or _has_apex():
            allowed = _TOLERANCE if system.precision.compute == "fp32" else _HALF_TOLERANCE
            compare_choices(here, plain_of(choice), choice, allowed)
        else:
            print_row({"choice": " ".join(choice), "not_reached": "not installed"})


def plain_of(choice: Choice) -> Choice:
    """Return the plain choice that computes the same: only the optimizer and clip mode of this one."""
    return tuple(setting for setting in choice if setting.startswith(("optimizer.name=", "clip.mode=")))


def _has_apex() -> bool:
    """Return whether NVIDIA's apex is installed; the package index has another package of that name."""
    try:
        return hasattr(import_module("apex.optimizers"), "FusedLAMB")
    except ImportError:
        return False


def compare_choices(here: Testbed, plain: Choice, choice: Choice, allowed: float) -> None:
    """Take the same steps with both, on one rank and on all. Losses must differ by at most the share `allowed`.

    Each choice has its own process, because after an error on the device, or a failed recording, the process can't do
    anything else.
    """
    for ranks in here.ranks:
        attempt(
            f"{' '.join(choice)}, {ranks} ranks",
            partial(on_ranks, ranks, compare_on_rank, here, plain, choice, allowed, device=here.device),
        )


def compare_on_rank(world: World, here: Testbed, plain: Choice, choice: Choice, allowed: float) -> None:
    """Take the same steps with both on this rank; rank 0 prints the row."""
    expected = take(world, here, plain)
    took = take(world, here, choice)
    apart = max(abs(loss - exact) / abs(exact) for loss, exact in zip(took["losses"], expected["losses"], strict=True))
    if world.leads:
        print_row({**took, "plain_step_ms": expected["step_ms"], "from_plain": round(apart, 6), "allowed": allowed,
             "holds": apart <= allowed})  # fmt: skip


def step_content(here: Testbed, ranks: int, step: int, rank: int) -> Columns:
    """Return a rank's samples of a step."""
    return learnable(here.shape, here.batch, _SEED + step * ranks + rank)


def bins_of(here: Testbed, ranks: int, parts: int) -> Bins:
    """Return bins for all parts of the testbed's steps; each holds the largest rank's part."""
    rows = np.arange(here.batch)
    sizes = []
    for step in range(here.steps):
        contents = [step_content(here, ranks, step, rank) for rank in range(ranks)]
        for part in range(parts):
            sizes.append(_common_size([size_of(batch_of(content.take(rows[part::parts]))) for content in contents]))
    return Bins(sizes, here.shape.max_positions)


def _common_size(sizes_R: list[BatchSize]) -> BatchSize:
    """Return the size that holds the part of every rank; all have as many samples."""
    return BatchSize(*(max(numbers) for numbers in zip(*sizes_R, strict=True)))


def fill_alike(world: World, bins: Bins, batch: Batch) -> Batch:
    """Fill a rank's batch up to a size that every rank's batch fits, because all replay the same graph. Collective."""
    return filled_to_size(batch, bins.smallest_for(_common_size(world.from_all(size_of(batch)))))


def take(world: World, here: Testbed, choice: Choice) -> Row:
    """Train a new model for the testbed's number of steps, each rank on its own samples.

    Return the losses of the global batch, and the median time of the steps without the first two; every step is
    synchronized.
    """
    system = system_of_choice(choice, here, world.size)
    parts = system.data.gradient_accumulation_steps
    trainer: WholeTrainer
    fill: Fill
    if system.compute.compile == "graphs":
        bins = bins_of(here, world.size, parts)
        trainer = GraphTrainer(system, world, _SEED, bins)
        fill = partial(fill_alike, world, bins)
    else:
        trainer = WholeTrainer(system, world, _SEED)
        fill = fill_of(system)
    rows = np.arange(here.batch)
    losses = []
    times = []
    for number in range(here.steps):
        content = step_content(here, world.size, number, world.rank)
        loaded = [
            part_of(content.take(rows[part::parts]), world.size, parts, fill, world.device) for part in range(parts)
        ]
        wait_for_device(world.device)
        began = time.perf_counter()
        report = trainer.step(number, loaded)
        wait_for_device(world.device)
        times.append(1e3 * (time.perf_counter() - began))
        losses.append(round(world.sum(report.loss).item(), 6))
    trainer.close()
    step_ms = round(statistics.median(times[2:] or times), 3)
    return {"choice": " ".join(choice), "ranks": world.size, "losses": losses, "step_ms": step_ms}
