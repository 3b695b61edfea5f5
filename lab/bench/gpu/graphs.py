"""Record whole steps as CUDA graphs: check that recording works, and time every batch size of BERT-Large."""

import statistics
import time
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.batch import batch_of
from bertbench.loading.bins import fill_to
from bertbench.machine.device import wait
from bertbench.model.options import CompileMode, PrecisionName
from bertbench.model.sizes import SHAPES
from bertbench.optim.options import Implementation
from lab.bench.gpu.stand import Answer, Stand
from lab.bench.gpu.text import learnable, part_of
from lab.bench.gpu.training import Choice, bins_for, build, take
from lab.bench.peak import peak_bytes, reset_peak

_TOLERANCE = 0.02  # on a loss of 10, in bf16, over a few steps
_LARGE_BATCH = 48
_REPEATS = 5


def capture(stand: Stand) -> Answer:
    """Record and replay steps with each optimizer, on one rank and on all: losses must be those of plain steps."""
    impls: list[Implementation] = ["torch", "triton"] if find_spec("triton") else ["torch"]
    plain = Choice(precision="bf16", compile="default")
    wanted = [plain._replace(impl=impl, compile="graphs") for impl in impls]
    wanted += [plain._replace(compile="graphs", accumulation=2), plain._replace(compile="graphs", clip="bucket")]
    wanted += [plain._replace(compile="graphs", sharded=True)]
    rows: list[dict[str, Any]] = []
    for ranks in stand.ranks:
        for choice in wanted:  # a process each: one failed recording may break all later ones
            beside = plain._replace(clip=choice.clip)
            expected, took = on_ranks(ranks, _take_both, stand, beside, choice, device=stand.device)
            apart = max(abs(a - b) for a, b in zip(expected.losses, took.losses, strict=True))
            rows.append({**took._asdict(), "from_plain": round(apart, 5), "agrees": apart <= _TOLERANCE})
    return Answer(all(row["agrees"] for row in rows), rows)


def _take_both(world: World, stand: Stand, *wanted: Choice) -> list[Any]:
    return [take(world, stand, choice, stand.steps) for choice in wanted]


def bins(stand: Stand) -> Answer:
    """Time BERT-Large's step in every bin, replayed and not; after initialisation nothing may be compiled."""
    large = stand._replace(shape=SHAPES["large"], batch=_LARGE_BATCH)
    found: dict[str, Any] = on_ranks(1, time_bins, large, device=stand.device)
    return Answer(all(one["recompiled"] == 0 for one in found["trainers"]), found)


def time_bins(world: World, stand: Stand) -> dict[str, Any]:
    """Run steps of every size, replayed and plain."""
    impl: Implementation = "triton" if stand.device == "cuda" and find_spec("triton") else "torch"
    sizes, rows, trainers = bins_for(stand), list[dict[str, Any]](), list[dict[str, Any]]()
    precision: PrecisionName = "bf16" if stand.device == "cuda" else "fp32"
    modes: tuple[CompileMode, ...] = ("default", "graphs")
    for choice in (Choice("lamb", impl, precision=precision, compile=mode) for mode in modes):
        reset_peak(world.device)
        began = time.perf_counter()
        trainer, _ = build(world, stand, choice, 1 + _REPEATS * len(sizes.all), sizes)
        seconds = time.perf_counter() - began
        compiled = _compiled()
        for size in sizes.all:
            content = learnable(stand.shape, stand.batch, seed=1)
            while not sizes.holds(size, batch_of(content)):
                content = content.take(torch.arange(1, len(content.lengths)).numpy())  # the longest comes first
            loaded = part_of(content, world.size, 1, partial(fill_to, size=size), world.device)
            times = []
            for number in range(_REPEATS):
                wait(world.device)
                start = time.perf_counter()
                trainer.step(number, [loaded])
                wait(world.device)
                times.append(1e3 * (time.perf_counter() - start))
            rows.append({"mode": choice.compile, **size._asdict(), "step_ms": round(statistics.median(times), 2)})
        trainers.append(
            {
                "mode": choice.compile, "initialisation_s": round(seconds, 1), "recompiled": _compiled() - compiled,
                "peak_megabytes": round(peak_bytes(world.device) / 2**20, 1),
            }
        )  # fmt: skip
        trainer.close()
    return {"trainers": trainers, "sizes": rows}


def _compiled() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
