"""Train whole trainers on made-up text: every optimizer, and steps recorded as CUDA graphs, against plain ones."""

import statistics
import time
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from bertbench.config import System
from bertbench.config.optimizer import ClipMode, Implementation, OptimizerName
from bertbench.distributed.spawn import on_ranks
from bertbench.distributed.world import World
from bertbench.loading.filler import Bins, Fill, fill_of
from bertbench.machine.device import wait
from bertbench.model.options import CompileMode, PrecisionName
from bertbench.training.graph_trainer import GraphTrainer
from bertbench.training.trainer import WholeTrainer
from lab.bench.gpu.stand import Row, Stand, Unfit, attempt, say, stand
from lab.bench.gpu.text import learnable, part_of
from lab.bench.short_run import short_run

_IMPLEMENTATIONS: tuple[Implementation, ...] = ("torch", "triton", "apex")
_SEED = 7
_RATE = 1e-2  # LAMB: a hundredth of a matrix's norm a step, enough to learn
_TOLERANCE = 1e-4  # share of a loss: fp32 sums in another order, over a few steps
_HALF_TOLERANCE = 0.05  # share of a loss, in 16 bits
_RECORDED_TOLERANCE = 2e-3  # share of a loss in bf16, against compiled steps


class Choice(NamedTuple):
    """The settings in which the check's trainers differ."""

    optimizer: OptimizerName = "lamb"
    impl: Implementation = "torch"
    sharded: bool = False
    precision: PrecisionName = "fp32"
    compile: CompileMode | None = "none"
    clip: ClipMode = "after"
    accumulation: int = 1

    @property
    def name(self) -> str:
        """Return the choice in words."""
        plain = self._field_defaults
        changed = [f"{name} {value}" for name, value in self._asdict().items() if value != plain[name]]
        return ", ".join([self.optimizer, self.impl, *changed])

    def system(self, here: Stand, ranks: int) -> System:
        """Return the system of a run with it."""
        optimizer = {"name": self.optimizer, "learning_rate": _RATE, "impl": self.impl, "sharded": self.sharded}
        data = {"gradient_accumulation_steps": self.accumulation, "equal_counts": True}
        return short_run(
            here.shape, here.batch, ranks, here.device, here.steps, data=data, optimizer=optimizer,
            clip={"mode": self.clip}, precision={"compute": self.precision}, compute={"compile": self.compile},
        )  # fmt: skip


def choices(device: str) -> list[Choice]:
    """Return the trainers to compare with plain ones."""
    wanted = [
        *(Choice("lamb", impl) for impl in _IMPLEMENTATIONS),
        Choice("lamb", sharded=True),
        Choice("lamb", "triton", sharded=True),
        *(Choice("adam", impl) for impl in _IMPLEMENTATIONS),
        Choice("adam", sharded=True),
        Choice("lamb", accumulation=2),
        Choice("muon"),
    ]
    if device == "cuda":  # a CPU would compile for minutes, and doesn't scale losses
        wanted += [Choice("lamb", precision="bf16", compile="default"), Choice("lamb", precision="fp16", clip="bucket")]
    return wanted


def recorded() -> list[Choice]:
    """Return the trainers whose steps are recorded."""
    impls: list[Implementation] = ["triton", "torch"] if find_spec("triton") else ["torch"]
    graphs = Choice(precision="bf16", compile="graphs")
    others = graphs._replace(accumulation=2), graphs._replace(clip="bucket"), graphs._replace(sharded=True)
    return [*(graphs._replace(impl=impl) for impl in impls), *others]


def capture() -> None:
    """Record and replay steps with each optimizer, on one rank and on all: losses must be those of plain steps."""
    here = stand()
    if here.device != "cuda":
        raise Unfit("needs a GPU")
    for choice in recorded():
        plain = Choice(precision="bf16", compile="default", clip=choice.clip)
        compare(here, plain, choice, _RECORDED_TOLERANCE)


def optimizers() -> None:
    """Take the same steps with every optimizer, on one rank and on all: losses must agree with torch's in fp32."""
    here = stand()
    has = {"torch": True, "triton": here.device == "cuda" and find_spec("triton") is not None, "apex": _has_apex()}
    for choice in choices(here.device):
        if has[choice.impl]:
            allowed = _TOLERANCE if choice.precision == "fp32" else _HALF_TOLERANCE
            compare(here, Choice(choice.optimizer, clip=choice.clip), choice, allowed)
        else:
            say({"choice": choice.name, "not_reached": "not installed"})


def _has_apex() -> bool:
    """Return whether NVIDIA's apex is here: the package index has another of that name."""
    try:
        return hasattr(import_module("apex.optimizers"), "FusedLAMB")
    except ImportError:
        return False


def compare(here: Stand, plain: Choice, choice: Choice, allowed: float) -> None:
    """Take the same steps with both, on one rank and on all: losses differ by at most the share `allowed`.

    A process for each choice: an error on the device, or a failed recording, breaks all that its process does later.
    """
    for ranks in here.ranks:
        attempt(
            f"{choice.name}, {ranks} ranks",
            partial(on_ranks, ranks, compare_on_rank, here, plain, choice, allowed, device=here.device),
        )


def compare_on_rank(world: World, here: Stand, plain: Choice, choice: Choice, allowed: float) -> None:
    """Take the same steps with both on this rank; rank 0 says the row."""
    expected, took = (take(world, here, one) for one in (plain, choice))
    apart = max(abs(loss - exact) / abs(exact) for loss, exact in zip(took["losses"], expected["losses"], strict=True))
    if world.leads:
        say({**took, "plain_step_ms": expected["step_ms"], "from_plain": round(apart, 6), "allowed": allowed,
             "holds": apart <= allowed})  # fmt: skip


def take(world: World, here: Stand, choice: Choice) -> Row:
    """Train a new model for the stand's steps, every rank on its own samples.

    Returns losses of the global batch, and the median step without the first two; every step is synchronized.
    """
    system = choice.system(here, world.size)
    trainer: WholeTrainer
    fill: Fill
    if choice.compile == "graphs":
        content, samples = learnable(here.shape, 2_000, _SEED), here.batch // choice.accumulation
        bins = Bins(content.lengths, content.masked, samples, here.shape.max_positions)
        trainer, fill = GraphTrainer(system, world, _SEED, bins), bins.fill
    else:
        trainer, fill = WholeTrainer(system, world, _SEED), fill_of(system)
    losses, times, parts, rows = [], [], choice.accumulation, np.arange(here.batch)
    for number in range(here.steps):
        content = learnable(here.shape, here.batch, _SEED + number * world.size + world.rank)
        loaded = [
            part_of(content.take(rows[part::parts]), world.size, parts, fill, world.device) for part in range(parts)
        ]
        wait(world.device)
        began = time.perf_counter()
        report = trainer.step(number, loaded)
        wait(world.device)
        times.append(1e3 * (time.perf_counter() - began))
        losses.append(round(world.sum(report.loss).item(), 6))
    trainer.close()
    step_ms = round(statistics.median(times[2:] or times), 3)
    return {"choice": choice.name, "ranks": world.size, "losses": losses, "step_ms": step_ms}
