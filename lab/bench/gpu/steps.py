"""Time steps of BERT-Large, as in a run, by events on the device, and compare the losses of each variant with bf16's.

The system, its data and its loader are those of a run. Between the steps there is no launcher, log or evaluation.
"""

import json
import math
import statistics
import time
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from bertbench.common.errors import ConfigError, RunError
from bertbench.common.phase_clock import wait_for_device
from bertbench.config import System, load_system
from bertbench.distributed.world import World
from bertbench.loading.filler import fill_of
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import LoadedStep, Loader
from bertbench.machine.choose_arithmetic import choose_arithmetic
from bertbench.machine.gpu_support import check_gpus
from bertbench.model.shape import SHAPES, BertShape
from bertbench.training.build import TrainerOptions, make_sampler, make_trainer
from bertbench.training.self_check import check_fast_paths
from bertbench.training.trainer import Trainer
from lab.bench.gpu.kernel_sums import kernel_sums
from lab.bench.gpu.marks import mark, milliseconds_between
from lab.bench.gpu.product import own_folder, write_system
from lab.bench.gpu.testbed import TINY, Row, attempt, print_row
from lab.bench.peak import peak_bytes
from lab.spawn import on_ranks

_SEED = 7
_COMPARED = 20
"""How many of a variant's last losses are averaged, because dropout's masks differ between variants."""
_APART = 0.1
"""The share by which the means may differ. It is wide, to find a path that doesn't learn; self-checks bound errors."""


_LEAST_MEMORY = {96: 38_000_000_000, 32: 22_000_000_000, 16: 0}
"""The samples of a step, and the least memory of a GPU for them: cards of 40, 24 and 16 GB hold 32, 17 and 13 GB."""


class Variant(NamedTuple):
    """One way to take a step."""

    name: str
    settings: tuple[str, ...] = ()
    """Settings, as in --set."""


AS_IT_COMES = Variant("as it comes")
"""On a GPU: bf16, also between layers, and CUDA graphs."""
VARIANTS = (
    AS_IT_COMES,
    Variant("products of the layers in fp8", ("precision.compute=fp8",)),
    Variant("without graphs", ("compute.compile=default",)),
    Variant("residual in fp32", ("precision.residual=fp32",)),
)
"""The variants, the most valuable first. A refused variant is reported as not reached, with the reason (`refusal`)."""


class StepSizes(NamedTuple):
    """The device of the steps, their size, and their number."""

    device: str
    shape: BertShape
    samples: int
    settings: tuple[str, ...]
    """Settings that the machine needs, whatever the variant's are."""
    timed: int
    warm_up: int
    """The number of steps that don't count, at the beginning."""
    profiled: int


class TakenSteps(NamedTuple):
    """The measurements of timed steps."""

    losses: list[float]
    milliseconds: list[float]
    filler: float
    """The share of tokens that are filler."""


def sizes_here() -> StepSizes:
    """Return the sizes for BERT-Large on a GPU, and for a few tiny steps on a CPU."""
    if torch.cuda.is_available():
        _, memory = torch.cuda.mem_get_info()
        return StepSizes("cuda", SHAPES["large"], samples_in(memory), (), 60, 20, 5)
    on_a_cpu = ("launch.device=cpu", "hardware.accelerators_per_node=0", "compute.compile=none", "optimizer.impl=torch")
    return StepSizes("cpu", TINY, 6, on_a_cpu, 6, 1, 2)


def samples_in(memory: int) -> int:
    """Return the largest batch that BERT-Large's steps surely hold in the GPU's memory, in bytes."""
    return next(samples for samples, least in _LEAST_MEMORY.items() if memory >= least)


def steps() -> None:
    """Take steps with each variant; print its rate, filler, memory and kernels by name, and compare its losses."""
    sizes = sizes_here()
    with own_folder() as folder:
        path = write_system(folder, sizes.shape, sizes.samples, sizes.timed)
        first: list[Row] = []
        for variant in VARIANTS:
            attempt(variant.name, partial(_print_comparison, path, variant, sizes, first))


def _print_comparison(path: Path, variant: Variant, sizes: StepSizes, first: list[Row]) -> None:
    """Print a variant's row, with its difference from the first variant's; store the first row in `first`."""
    if reason := refusal(path, variant, sizes):
        print_row({"choice": variant.name, "not_reached": reason})
        return
    checks = variant == AS_IT_COMES
    row = on_ranks(1, steps_on_rank, path, variant, sizes, checks, device=sizes.device)
    print_row(compared_with(row, first[0]) if first else row)
    if not first:
        first.append(row)


def refusal(path: Path, variant: Variant, sizes: StepSizes) -> str | None:
    """Return why this version's configuration, or a GPU of this machine, refuses a variant; None if neither does."""
    try:
        check_gpus(load_system(str(path), (*variant.settings, *sizes.settings)))
    except (ConfigError, RunError) as error:
        return str(error)
    return None


def compared_with(row: Row, first: Row) -> Row:
    """Return a variant's row, with the relative difference of its last losses from the first variant's."""
    last, expected = row["losses"][-_COMPARED:], first["losses"][-_COMPARED:]
    apart = abs(statistics.fmean(last) / statistics.fmean(expected) - 1)
    holds = row["holds"] and apart <= _APART  # false for NaN
    return {**row, "from_first": round(apart, 5), "allowed": _APART, "holds": holds}


def steps_on_rank(world: World, path: Path, variant: Variant, sizes: StepSizes, checks: bool) -> Row:
    """Take steps of a variant on this rank, then profile some more; with `checks`, first check its fast paths."""
    began = time.monotonic()
    asked = load_system(str(path), (*variant.settings, *sizes.settings))
    arithmetic = choose_arithmetic(asked, world, None)
    if checks:
        arithmetic = check_fast_paths(asked, world, arithmetic)
    system = arithmetic.applied(asked)
    sampler = make_sampler(system, open_data(system)[0], _SEED)
    trainer = make_trainer(system, world, _SEED, sampler, TrainerOptions(products=dict(arithmetic.products)))
    loader = Loader(sampler, world.rank, world.device, fill=fill_of(system))
    built_s = time.monotonic() - began
    taken = take_steps(world, trainer, loader.steps(range(sizes.timed)))
    row = _described(variant, system, trainer, built_s) | _measured(taken, sizes.warm_up, system.global_batch_size)
    row["peak_gb"] = round(peak_bytes(world.device) / 1e9, 3)
    row["refused"] = list(arithmetic.refused)
    if sizes.profiled:
        more_steps = list(loader.steps(range(sizes.timed, sizes.timed + sizes.profiled)))
        row |= profile_steps(world, trainer, more_steps)
    trainer.close()
    return row | {"holds": all(map(math.isfinite, taken.losses)) and not arithmetic.refused}


def take_steps(world: World, trainer: Trainer, loaded: Iterable[LoadedStep]) -> TakenSteps:
    """Take the steps one after the other, without reading anything back from the device between them."""
    losses = []
    marks = [mark(world.device)]
    tokens = 0
    with_filler = 0
    for number, step in enumerate(loaded):
        losses.append(trainer.step(number, step.parts).loss)
        marks.append(mark(world.device))
        assert step.counts is not None
        tokens += step.counts.tokens
        with_filler += sum(len(part.batch.tokens_T) for part in step.parts)
    wait_for_device(world.device)
    return TakenSteps(
        losses=torch.stack(losses).tolist(),
        milliseconds=[milliseconds_between(begun, ended) for begun, ended in pairwise(marks)],
        filler=1 - tokens / with_filler,
    )


def profile_steps(world: World, trainer: Trainer, loaded: list[LoadedStep]) -> Row:
    """Take more steps under the profiler; return their kernels by name."""
    on_gpu = world.device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    wait_for_device(world.device)
    with profile(activities=[activity]) as profiler:
        for number, step in enumerate(loaded):
            trainer.step(number, step.parts)
        wait_for_device(world.device)
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events: list[dict[str, Any]] = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return kernel_sums(events, world.device.type, len(loaded))


def _described(variant: Variant, system: System, trainer: Trainer, built_s: float) -> Row:
    step = trainer.describe_step()
    return {
        "choice": variant.name,
        "settings": list(variant.settings),
        "compile": system.compute.compile,
        "residual": system.precision.residual,
        "model_arithmetic": step.model_arithmetic,
        "optimizer_arithmetic": step.optimizer_arithmetic,
        "built_s": round(built_s, 1),
    }


def _measured(taken: TakenSteps, warm_up: int, samples: int) -> Row:
    """Return the median time of the steps after the warm-up, and the rate that follows from it."""
    steady = taken.milliseconds[warm_up:]
    step_ms = statistics.median(steady)
    return {
        "steps": len(taken.losses),
        "step_ms": round(step_ms, 3),
        "shortest_ms": round(min(steady), 3),
        "longest_ms": round(max(steady), 3),
        "samples_per_s": round(1e3 * samples / step_ms, 1),
        "filler": round(taken.filler, 5),
        "losses": [round(loss, 4) for loss in taken.losses],
    }
