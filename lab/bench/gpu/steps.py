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
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.filler import fill_of
from bertbench.loading.inputs import open_data
from bertbench.loading.loader import LoadedStep, Loader
from bertbench.machine.choose_arithmetic import choose_arithmetic
from bertbench.machine.gpu_support import check_gpus
from bertbench.model.shape import SHAPES, BertShape
from bertbench.training.build import make_sampler, make_trainer
from bertbench.training.self_check import check_fast_paths
from bertbench.training.trainer import Trainer
from lab.bench.gpu.kernel_sums import kernel_sums
from lab.bench.gpu.marks import mark, milliseconds_between
from lab.bench.gpu.product import own_folder, write_system
from lab.bench.gpu.testbed import TINY, Row, attempt, print_row
from lab.bench.peak import peak_bytes

_SEED = 7
_COMPARED = 20
"""How many of a variant's last losses are averaged, because dropout's masks differ between variants."""
_APART = 0.1
"""The share by which the means may differ. It is wide, to find a path that doesn't learn; self-checks bound errors."""


class Variant(NamedTuple):
    """One way to take a step."""

    name: str
    settings: tuple[str, ...] = ()
    """Settings, as in --set."""
    autotunes: bool = False
    """Whether Inductor tries many kernels for each compiled piece."""
    is_long: bool = False
    """Whether it takes `StepSizes.long` steps, in which losses fall: for formats that round more than bf16."""

    def steps(self, sizes: "StepSizes") -> int:
        """Return how many steps the variant takes in the part `variants`."""
        return sizes.long if self.is_long else sizes.timed // 2

    @property
    def has_same_batch(self) -> bool:
        """Return whether the settings leave the batch size unchanged, so that losses can be compared."""
        return not any(setting.startswith("data.local_batch=") for setting in self.settings)


AS_IT_COMES = Variant("as it comes")
RESIDUALS = (AS_IT_COMES, Variant("residual in fp32", ("precision.residual=fp32",)))
"""As it comes, a GPU passes hidden states between layers in bf16."""
VARIANTS = (
    AS_IT_COMES._replace(is_long=True),
    Variant("products of the layers in fp8", ("precision.compute=fp8",), is_long=True),
    Variant("rows of 512 tokens", ("data.balance=packed", "data.equal_counts=false")),
    Variant("192 samples", ("data.local_batch=192",)),
    Variant("224 samples", ("data.local_batch=224",)),
    Variant("Inductor tries many kernels", autotunes=True),  # the slowest to compile comes last
)
"""The variants, the most valuable first. A refused variant is reported as not reached, with the reason (`refusal`)."""


class StepSizes(NamedTuple):
    """The device of the steps, their size, and their number."""

    device: str
    shape: BertShape
    samples: int
    settings: tuple[str, ...]
    """Settings that the machine needs."""
    timed: int
    """The number of steps of the part `large`; most variants take half as many."""
    long: int
    """The number of steps of the other variants."""
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
    """Return the sizes for BERT-Large with 96 samples on a GPU, and for a few tiny steps on a CPU."""
    if torch.cuda.is_available():
        return StepSizes("cuda", SHAPES["large"], 96, (), 120, 200, 20, 5)
    on_a_cpu = ("launch.device=cpu", "hardware.accelerators_per_node=0", "compute.compile=none", "optimizer.impl=torch")
    return StepSizes("cpu", TINY, 6, on_a_cpu, 8, 9, 1, 2)


def large() -> None:
    """Take steps as in a run, then with hidden states in fp32; print rate, filler, memory, and kernels by name."""
    sizes = sizes_here()
    with own_folder() as folder:
        path = write_system(folder, sizes.shape, sizes.samples, sizes.timed)
        for variant in RESIDUALS:
            attempt(variant.name, partial(_print_steps, path, variant, sizes, sizes.timed, sizes.profiled))


def _print_steps(path: Path, variant: Variant, sizes: StepSizes, steps: int, profiled: int) -> None:
    checks = variant == AS_IT_COMES
    print_row(on_ranks(1, steps_on_rank, path, variant, sizes, steps, profiled, checks, device=sizes.device))


def variants() -> None:
    """Take steps with each variant; their losses must be close to those of the first variant."""
    sizes = sizes_here()
    with own_folder() as folder:
        path = write_system(folder, sizes.shape, sizes.samples, sizes.long)
        first: list[Row] = []
        for variant in VARIANTS:
            attempt(variant.name, partial(_print_comparison, path, variant, sizes, first))


def _print_comparison(path: Path, variant: Variant, sizes: StepSizes, first: list[Row]) -> None:
    """Print a variant's row, with its difference from the first variant's; store the first row in `first`."""
    if reason := refusal(path, variant, sizes):
        print_row({"choice": variant.name, "not_reached": reason})
        return
    steps = variant.steps(sizes)
    row = on_ranks(1, steps_on_rank, path, variant, sizes, steps, 0, False, device=sizes.device)
    print_row(compared_with(row, first[0]) if first and variant.has_same_batch else row)
    if not first:
        first.append(row)


def refusal(path: Path, variant: Variant, sizes: StepSizes) -> str | None:
    """Return why this version's configuration, or a GPU of this machine, refuses a variant; None if neither does."""
    try:
        check_gpus(load_system(str(path), (*sizes.settings, *variant.settings)))
    except (ConfigError, RunError) as error:
        return str(error)
    return None


def compared_with(row: Row, first: Row) -> Row:
    """Return a variant's row, with the relative difference of its last losses from the first variant's of these steps.

    The first variant took at least as many steps.
    """
    losses = row["losses"]
    expected = first["losses"][: len(losses)]
    apart = abs(statistics.fmean(losses[-_COMPARED:]) / statistics.fmean(expected[-_COMPARED:]) - 1)
    holds = row["holds"] and apart <= _APART  # false for NaN
    return {**row, "from_first": round(apart, 5), "allowed": _APART, "holds": holds}


def steps_on_rank(
    world: World, path: Path, variant: Variant, sizes: StepSizes, steps: int, profiled: int, checks: bool
) -> Row:
    """Take steps of a variant on this rank, then profile some more; with `checks`, first check its fast paths."""
    if variant.autotunes:
        _tune_kernels()
    began = time.monotonic()
    asked = load_system(str(path), (*sizes.settings, *variant.settings))
    arithmetic = choose_arithmetic(asked, world, None)
    if checks:
        arithmetic = check_fast_paths(asked, world, arithmetic)
    system = arithmetic.applied(asked)
    sampler = make_sampler(system, open_data(system)[0], _SEED)
    trainer = make_trainer(system, world, _SEED, sampler, arithmetic=arithmetic)
    loader = Loader(sampler, world.rank, world.device, fill=fill_of(system))
    built_s = time.monotonic() - began
    taken = take_steps(world, trainer, loader.steps(range(steps)))
    row = _described(variant, system, trainer, built_s) | _measured(taken, sizes.warm_up, system.global_batch_size)
    row["peak_gb"] = round(peak_bytes(world.device) / 1e9, 3)
    row["refused"] = list(arithmetic.refused)
    if profiled:
        more_steps = list(loader.steps(range(steps, steps + profiled)))
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


def _tune_kernels() -> None:
    """Let Inductor time many kernels for each compiled piece and take the fastest."""
    import torch._inductor.config  # noqa: PLC0415 - takes seconds

    torch._inductor.config.max_autotune = True
