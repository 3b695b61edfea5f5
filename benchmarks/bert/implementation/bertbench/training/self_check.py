"""Check a run's fast paths before its clock starts: each must compute what the same step without it computes.

plain: fp32, torch's products, not compiled -> + bf16 -> + oneDNN -> + torch.compile -> + Triton -> + CUDA graphs
Each takes one step of two layers of the run's model, without dropout, on one synthetic batch. A path that fails, or
whose loss, gradients or updates leave their bound, is refused: the run continues without it, and says so.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.config.optimizer import Communication, Sync
from bertbench.config.rules import broken
from bertbench.config.step_rules import GRAPH_RULES
from bertbench.distributed.world import World
from bertbench.loading.batch import synthetic
from bertbench.loading.filler import Bins, fill_of
from bertbench.loading.loader import LoadedPart
from bertbench.loading.sampler import Part
from bertbench.machine.arithmetic import Arithmetic
from bertbench.model.linear import Products
from bertbench.model.options import default_mode
from bertbench.model.products import Shape
from bertbench.training.trainer import WholeTrainer

_SEED, _LAYERS, _SAMPLES, _LENGTH = 5, 2, 8, 64
_FLOOR = 1e-3  # share of all tensors' norm below which a tensor is noise: bf16's on keys' biases, truly 0, is 1e-5
_PRODUCTS = 16  # that a gradient passes through in two layers, forward and backward
_ROUNDED = _PRODUCTS * 2**-8  # what products rounded to bf16 can add up to, 0.062; 0.017 is the most we have seen
_EXACT = _PRODUCTS * 4096 * 2**-24  # sums of 4,096 numbers in fp32, in another order: 0.004; seen: 3e-6
_UPDATE = 0.1  # Adam's first update is a gradient's sign, which rounding flips where the gradient is almost 0


class Path(NamedTuple):
    """One fast path."""

    name: str
    instead: str
    rounds: bool
    """Whether it may round otherwise in 16 bits: then gradients have the wider bound, and updates none."""
    on: Callable[[Arithmetic], bool]
    without: dict[str, Any]
    """The fields of an arithmetic without it."""
    needs: tuple[str, ...] = ()
    """Paths without which it can't work."""


def _by_onednn(arithmetic: Arithmetic) -> bool:
    return any(library != "torch" for _, products in arithmetic.products for library in products)


PATHS = (
    Path("bf16", "fp32", True, lambda chosen: chosen.precision == "bf16", {"precision": "fp32"}),
    Path("oneDNN products", "torch's products", True, _by_onednn, {"products": ()}),
    Path("torch.compile", "torch's own operations", True, lambda chosen: chosen.compile != "none", {"compile": "none"}),
    Path("Triton optimizer", "torch's optimizer", False, lambda chosen: chosen.impl == "triton", {"impl": "torch"}),
    Path(
        "CUDA graphs", "steps that are launched one by one", False, lambda chosen: chosen.compile == "graphs",
        {"compile": "default"}, ("bf16", "torch.compile"),
    ),
)  # fmt: skip
"""In the order in which they are checked."""

Step = dict[str, Tensor]
"""What a step computed, by name: the loss, the first moments, and the updates of weights."""
Take = Callable[[System, World, dict[Shape, Products]], Step]


def check(system: System, world: World, chosen: Arithmetic, take: "Take | None" = None) -> Arithmetic:
    """Return the arithmetic without the paths that don't compute what they should; the same on all ranks. Collective.

    It has nothing to compare, and returns what it got, where ranks share a model or gradients pass through fp16.
    """
    take, fastest = take or take_step, fastest_of(system, chosen)
    wanted = paths_of(fastest)
    if system.parallel.splits or system.scales_loss or not wanted:
        return fastest
    off = {path.name for path in wanted}
    plain = without(fastest, off)
    expected = take(plain.applied(system), world, dict(plain.products))
    lines = []
    for path in wanted:
        bound = _ROUNDED if path.rounds and fastest.precision == "bf16" else _EXACT
        missing = [name for name in path.needs if name in off]
        trial = without(fastest, off - {path.name})
        found, problem = (None, f"it needs {missing[0]}") if missing else _tried(take, trial, system, world)
        if found is not None:
            problem = difference(found, expected, bound, updates=not path.rounds)
        problem = next(filter(None, world.from_all(problem)), "")
        if problem or found is None:
            lines.append(f"{path.name} refused: {problem}; {path.instead} instead")
        else:
            off, expected = off - {path.name}, found
    return replace(without(fastest, off), checked=tuple(path.name for path in wanted), refused=tuple(lines))


def _tried(take: Take, trial: Arithmetic, system: System, world: World) -> tuple[Step | None, str]:
    try:
        return take(trial.applied(system), world, dict(trial.products)), ""
    except (ConfigError, RuntimeError) as error:
        return None, (str(error).strip() or type(error).__name__).splitlines()[-1]


def fastest_of(system: System, chosen: Arithmetic) -> Arithmetic:
    """Return the arithmetic with `auto` replaced by the fastest path that the system's other settings allow."""
    on_gpu, mode, impl = system.launch.device == "cuda", system.compute.compile, system.optimizer.impl
    if impl == "auto":
        whole = system.optimizer.is_adam_or_lamb and not system.parallel.splits
        impl = "triton" if on_gpu and whole and find_spec("triton") else "torch"
    if mode in (None, "auto"):
        replayed = replace(chosen, compile="graphs", impl=impl).applied(system)
        graphs = mode == "auto" and on_gpu and not list(broken(GRAPH_RULES, replayed))
        mode = "graphs" if graphs else default_mode(system.launch.device)
    return replace(chosen, compile=mode, impl=impl)


def paths_of(arithmetic: Arithmetic) -> list[Path]:
    """Return the fast paths of an arithmetic, in the order in which they are checked."""
    return [path for path in PATHS if path.on(arithmetic)]


def without(arithmetic: Arithmetic, off: Collection[str]) -> Arithmetic:
    """Return the arithmetic without these of its paths."""
    fields = [path.without for path in reversed(paths_of(arithmetic)) if path.name in off]  # compile after graphs
    return replace(arithmetic, **{name: value for changed in fields for name, value in changed.items()})


def take_step(system: System, world: World, products: dict[Shape, Products]) -> Step:
    """Take one step of a trainer as the run's own, only smaller."""
    small = _small(system)
    generator = torch.Generator().manual_seed(_SEED + world.rank)
    length = length_of(small)
    batch = synthetic(_SAMPLES, length, small.model.vocab_size, generator)
    masked = len(batch.masked_at_M)
    part = Part(np.arange(_SAMPLES), 1 / (world.size * masked), 1 / (world.size * _SAMPLES))
    trainer: WholeTrainer
    if small.compute.compile == "graphs":
        from bertbench.training.graph_trainer import GraphTrainer  # noqa: PLC0415 - of few runs

        counts = np.full(_SAMPLES, length), np.full(_SAMPLES, -(-masked // _SAMPLES))
        bins = Bins(*counts, _SAMPLES, small.model.max_positions)
        trainer, batch = GraphTrainer(small, world, _SEED, bins, None, products), bins.fill(batch)
    else:
        trainer = WholeTrainer(small, world, _SEED, None, products)
        batch = fill_of(small)(batch)
    before = {name: tensor.clone() for name, tensor in trainer.state().items() if name.startswith("model.")}
    report = trainer.step(0, [LoadedPart(part, batch.to(world.device))])
    state = {name: tensor.clone() for name, tensor in trainer.state().items() if not name.endswith(".second")}
    trainer.close()
    updates = {name: state.pop(name) - tensor for name, tensor in before.items()}
    return {"loss": report.loss.detach().clone(), **state, **updates}


def length_of(system: System) -> int:
    """Return the samples' length: a GPU's attention may be wrong only where sequences are long."""
    longest = system.model.max_positions
    return longest if system.launch.device == "cuda" else min(_LENGTH, longest)


def _small(system: System) -> System:
    """Return the system with two layers and few samples, without dropout, and all that a first step doesn't need."""
    changes: dict[str, dict[str, Any]] = {
        "model": {
            "layers": min(_LAYERS, system.model.layers), "hidden_dropout": 0.0, "attention_dropout": 0.0,
            "checkpoint": None,
        },
        "data": {"local_batch": _SAMPLES, "global_batch_size": None, "gradient_accumulation_steps": 1},
        "schedule": {"warmup_steps": 0, "start_warmup_step": 0},
        "optimizer": {"ema_decay": 0.0, "sharded": False},
        "launch": {"rank_speeds": None},
    }  # fmt: skip
    sections = {name: getattr(system, name).model_copy(update=change) for name, change in changes.items()}
    return system.model_copy(update={**sections, "sync": Sync(), "communication": Communication()})


def difference(found: Step, expected: Step, bound: float, updates: bool) -> str:
    """Return the largest difference that leaves its bound, as a share of what is expected; empty if none does."""
    problems = []
    for kind, limit in (("loss", bound), ("optimizer.", bound), ("model.", _UPDATE)):
        if kind == "model." and not updates:
            continue
        names = [name for name in expected if name.startswith(kind)]
        floor = _FLOOR * _norm([expected[name] for name in names])
        for name in names:
            apart = _norm([found[name] - expected[name]]) / (_norm([expected[name]]) + floor)
            if not apart <= limit:  # not a number leaves every bound
                problems.append((apart, f"{name} differs by {apart:.2g} of its size, {limit:g} is allowed"))
    return max(problems, default=(0.0, ""))[1]


def _norm(tensors: list[Tensor]) -> float:
    return float(torch.stack([tensor.double().norm() for tensor in tensors]).norm()) if tensors else 0.0
