"""Record whole steps as CUDA graphs: check that recording works, and time every batch size of BERT-Large."""

import statistics
import time
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch

from bertbench.config.optimizer import Implementation
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import batch_of
from bertbench.loading.filler import fill_to
from bertbench.model.options import CompileMode
from bertbench.model.shape import SHAPES
from lab.bench.gpu.stand import Stand, attempt, say
from lab.bench.gpu.text import learnable, part_of
from lab.bench.gpu.training import Choice, bins_for, build, compare, fastest
from lab.bench.harness import milliseconds
from lab.bench.peak import peak_bytes, reset_peak

_TOLERANCE = 2e-3  # share of a loss, in bf16, over a few steps
_LARGE_BATCH = 48
_REPEATS = 5


def recorded() -> list[Choice]:
    """Return the trainers whose steps are recorded."""
    impls: list[Implementation] = ["triton", "torch"] if find_spec("triton") else ["torch"]
    graphs = Choice(precision="bf16", compile="graphs")
    others = graphs._replace(accumulation=2), graphs._replace(clip="bucket"), graphs._replace(sharded=True)
    return [*(graphs._replace(impl=impl) for impl in impls), *others]


def capture(stand: Stand) -> None:
    """Record and replay steps with each optimizer, on one rank and on all: losses must be those of plain steps."""
    stand.need_gpu()
    for choice in recorded():
        compare(stand, Choice(precision="bf16", compile="default", clip=choice.clip), choice, _TOLERANCE)


def bins(stand: Stand) -> None:
    """Time BERT-Large's step in every bin, replayed and not; after initialisation nothing may be compiled."""
    stand.need_gpu()
    large = stand._replace(shape=SHAPES["large"], batch=_LARGE_BATCH)
    modes: tuple[CompileMode, ...] = ("graphs", "default")
    for mode in modes:
        attempt(mode, partial(on_ranks, 1, time_bins, large, mode, device=stand.device))


def time_bins(world: World, stand: Stand, mode: CompileMode) -> None:
    """Say the time of steps of every size in one mode, then what the trainer took."""
    sizes, choice = bins_for(stand), fastest(stand)._replace(compile=mode)
    reset_peak(world.device)
    began = time.perf_counter()
    trainer, _ = build(world, stand, choice, 1 + _REPEATS * len(sizes.all))
    seconds = time.perf_counter() - began
    compiled = _compiled()
    for size in sizes.all:
        content = learnable(stand.shape, stand.batch, seed=1)
        while not sizes.holds(size, batch_of(content)):
            content = content.take(np.arange(1, len(content)))  # the longest comes first
        loaded = part_of(content, world.size, 1, partial(fill_to, size=size), world.device)
        times = [milliseconds(partial(trainer.step, number, [loaded]), world.device) for number in range(_REPEATS)]
        new = _compiled() - compiled
        say({"mode": mode, **size._asdict(), "step_ms": round(statistics.median(times), 2), "recompiled": new,
             "initialisation_s": round(seconds, 1), "peak_megabytes": round(peak_bytes(world.device) / 2**20, 1),
             "holds": new == 0})  # fmt: skip
    trainer.close()


def _compiled() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
