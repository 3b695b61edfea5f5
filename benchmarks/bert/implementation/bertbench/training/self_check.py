"""Check a run's fast paths before its clock starts: each must compute the same as a step without it.

plain: fp32, torch's products, not compiled
    -> + bf16, oneDNN, torch.compile, bf16 residual -> + fp8 -> + Triton, CUDA graphs
Each `->` adds the paths of one kind of rounding, and takes one step of a small model (small_step.py). If the step
fails, or its loss, gradients or updates exceed their bounds, its paths are tried one by one. The run continues without
a path that fails alone, and prints a warning. If a step fails on some ranks only, the others wait for them in the
step's collectives, and the run ends.
"""

import gc
import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

import torch
from torch import Tensor

from bertbench.common.errors import ConfigError
from bertbench.config import System
from bertbench.distributed.joint_attempt import attempt_together, reason_of
from bertbench.distributed.world import World
from bertbench.machine.choose_arithmetic import Arithmetic
from bertbench.model.linear import Products
from bertbench.model.options import PrecisionName, without_fp8
from bertbench.model.products import Shape
from bertbench.training.small_step import StepResult, masks_problem, take_step

# A tensor below this share of all tensors' norm is noise. The gradient of keys' biases is really 0; in bf16 it is 1e-5.
_FLOOR = 1e-3
# A gradient below this share of all gradients' norm has an update of noise: Adam's first update is the gradient's sign.
# At BERT-Large's width, the smallest gradient that isn't noise, that of queries' biases, has 1e-4.
_NOISE = 5e-5
_PRODUCTS = 16  # products through which a gradient passes in two layers, forward and backward
_ROUNDED = _PRODUCTS * 2**-8  # the most that errors of products in bf16 can add up to, 0.062; we have seen up to 0.017
_EXACT = _PRODUCTS * 4096 * 2**-24  # for sums of 4,096 fp32 numbers in another order: 0.004; we have seen up to 3e-6
# fp8 rounds a number by at most 2^-4 (e4m3) or 2^-3 (e5m2), both operands of a product independently. The plain sum of
# errors over the products would be 2.5 and allow anything. Independent errors add up by their squares, to 0.47.
_ROUNDED_TO_FP8 = (_PRODUCTS / 2 * (2 * 2**-8) + _PRODUCTS / 2 * (2**-8 + 2**-6)) ** 0.5
_BOUNDS: dict[PrecisionName, float] = {"bf16": _ROUNDED, "fp8": _ROUNDED_TO_FP8}
# Of paths that round nothing more, where it isn't _EXACT: a number that rounds otherwise in bf16 becomes its neighbour
# in fp8, 2^-3 away. If 1 % of attention's numbers do so, gradients differ by 0.9 % (simulated).
_BOUNDS_WITHOUT_ROUNDING: dict[PrecisionName, float] = {"fp8": _ROUNDED}
_UPDATE = 0.1  # rounding flips a gradient's sign where it is almost 0


@dataclass(frozen=True, kw_only=True)
class FastPath:
    """One fast path."""

    name: str
    instead: str
    """What a run uses without it."""
    setting: str
    """The setting of a run without it."""
    rounding: Literal["16 bits", "8 bits", "as before"]
    """The format in which it may round differently: then gradients have a wider bound and updates have none."""
    is_on: Callable[[Arithmetic], bool]
    without: dict[str, Any]
    """The fields of an arithmetic that doesn't use it."""
    needs: tuple[str, ...] = ()
    """The paths that it needs."""
    find_problem: Callable[[System, World, dict[Shape, Products]], str] | None = None
    """Returns a problem that a step without dropout doesn't show; empty if there is none."""


def _by_onednn(arithmetic: Arithmetic) -> bool:
    return any(library != "torch" for _, products in arithmetic.products for library in products)


FAST_PATHS = (
    FastPath(
        name="bf16",
        instead="fp32",
        setting="precision.compute=fp32",
        rounding="16 bits",
        is_on=lambda chosen: without_fp8(chosen.precision) == "bf16",
        without={"precision": "fp32"},
    ),
    FastPath(
        name="oneDNN matmuls",
        instead="torch matmul",
        setting="compute.products=torch",
        rounding="16 bits",
        is_on=_by_onednn,
        without={"products": ()},
    ),
    FastPath(
        name="torch.compile",
        instead="torch's own operations",
        setting="compute.compile=none",
        rounding="16 bits",
        is_on=lambda chosen: chosen.compile != "none",
        without={"compile": "none"},
    ),
    FastPath(
        name="bf16 residual",
        instead="hidden states in fp32",
        setting="precision.residual=fp32",
        rounding="16 bits",
        is_on=lambda chosen: without_fp8(chosen.precision) == "bf16" and chosen.residual == "bf16",
        without={"residual": "fp32"},
        needs=("bf16",),
    ),
    FastPath(
        name="fp8",
        instead="bf16",
        setting="precision.compute=bf16",
        rounding="8 bits",
        is_on=lambda chosen: chosen.precision == "fp8",
        without={"precision": "bf16"},
        needs=("bf16",),
    ),
    FastPath(
        name="Triton optimizer",
        instead="torch's optimizer",
        setting="optimizer.impl=torch",
        rounding="as before",
        is_on=lambda chosen: chosen.impl == "triton",
        without={"impl": "torch"},
    ),
    FastPath(
        name="apex's optimizer",
        instead="torch's optimizer",
        setting="optimizer.impl=torch",
        rounding="as before",
        is_on=lambda chosen: chosen.impl == "apex",
        without={"impl": "torch"},
    ),
    FastPath(
        name="CUDA graphs",
        instead="steps without graphs",
        setting="compute.compile=default",
        rounding="as before",
        is_on=lambda chosen: chosen.compile == "graphs",
        without={"compile": "default"},
        needs=("bf16", "torch.compile"),
        find_problem=masks_problem,
    ),
)
"""All fast paths, in the order in which they are checked."""

TakeStep = Callable[[System, World, dict[Shape, Products]], StepResult]


def check_fast_paths(system: System, world: World, fastest: Arithmetic, take: TakeStep = take_step) -> Arithmetic:
    """Return the arithmetic without the paths that compute something else; the same on all ranks. Collective.

    If ranks share a model, or gradients are in fp16, nothing is compared and the arithmetic is returned unchanged.
    Raises RunError on a rank on which alone a path fails.
    """
    paths = paths_of(fastest)
    if system.parallel.splits or system.scales_loss or not paths:
        return fastest
    names = [path.name for path in paths]
    plain = without(fastest, names)
    expected = take(plain.applied(system), world, dict(plain.products))
    held: list[FastPath] = []  # the paths that were added so far
    refused = {}
    for _, same_rounding in groupby(paths, attrgetter("rounding")):
        group = list(same_rounding)
        result, problem = _try_paths(group, held, fastest, expected, take, system, world)
        if not problem:
            held += group
            expected = result
            continue
        for path in group:
            if len(group) > 1:  # or else it was tried alone above
                result, problem = _try_paths([path], held, fastest, expected, take, system, world)
            if problem:
                refused[path.name] = f"{path.name} refused: {problem}; using {path.instead} instead"
            else:
                held.append(path)
                expected = result
    # Each step's trainer is part of a cycle, like its compiled layers, and takes 0.9 GB with BERT-Large's vocabulary
    gc.collect()
    return replace(without(fastest, refused), checked=tuple(names), refused=tuple(refused.values()))


def _try_paths(
    group: Sequence[FastPath],
    held: Sequence[FastPath],
    fastest: Arithmetic,
    expected: StepResult,
    take: TakeStep,
    system: System,
    world: World,
) -> tuple[StepResult, str]:
    """Take a step with a group of paths added to those that hold; return its result and a problem of any rank.

    The problem is the same on all ranks, and empty if there is none. Collective.
    """
    still_off = [path.name for path in paths_of(fastest) if path not in held and path not in group]
    for path in group:
        for name in path.needs:
            if name in still_off:
                return {}, f"needs {name}, which was refused"
    result, problem = _try_on_this_rank(group, without(fastest, still_off), expected, take, system, world)
    problems = [text for text in world.from_all(problem) if text]
    return result, problems[0] if problems else ""


def _try_on_this_rank(
    group: Sequence[FastPath],
    trial: Arithmetic,
    expected: StepResult,
    take: TakeStep,
    system: System,
    world: World,
) -> tuple[StepResult, str]:
    """Take a step of arithmetic `trial`; return its result, and the problem that this rank has with it."""
    names = [path.name for path in group]
    trial_system, products = trial.applied(system), dict(trial.products)

    def attempt() -> tuple[StepResult, str]:
        result = take(trial_system, world, products)
        problems = (path.find_problem(trial_system, world, products) for path in group if path.find_problem)
        return result, next(filter(None, problems), "")

    remedy = "add " + " ".join(f"--set {path.setting}" for path in group)
    outcome = attempt_together(world, f"the check of {', '.join(names)}", attempt, _failures(), remedy)
    if isinstance(outcome, Exception):
        return {}, reason_of(outcome)
    result, problem = outcome
    rounds = group[0].rounding != "as before"
    bounds = _BOUNDS if rounds else _BOUNDS_WITHOUT_ROUNDING
    bound = bounds.get(trial.precision, _EXACT)
    return result, difference(result, expected, bound, updates=not rounds) or problem


def _failures() -> tuple[type[Exception], ...]:
    """Return the kinds of errors that refuse a path; others are bugs, and keep their traceback."""
    # the last: Triton compiles its launchers by a C compiler, which needs Python's headers
    failures = (ConfigError, RuntimeError, ImportError, subprocess.CalledProcessError)
    try:
        from triton import TritonError  # noqa: PLC0415 - optional
    except ImportError:
        return failures
    return (*failures, TritonError)  # which is no RuntimeError


def paths_of(arithmetic: Arithmetic) -> list[FastPath]:
    """Return the fast paths of an arithmetic, in the order in which they are checked."""
    return [path for path in FAST_PATHS if path.is_on(arithmetic)]


def without(arithmetic: Arithmetic, off: Collection[str]) -> Arithmetic:
    """Return the arithmetic without the paths in `off`."""
    changes: dict[str, Any] = {}
    for path in reversed(paths_of(arithmetic)):  # torch.compile comes after graphs: its `none` replaces their `default`
        if path.name in off:
            changes |= path.without
    return replace(arithmetic, **changes)


def difference(result: StepResult, expected: StepResult, bound: float, updates: bool) -> str:
    """Return a text about the largest difference that exceeds its bound; empty if none does.

    A difference is relative to the expected value. Updates by gradients of noise aren't compared.
    """
    limits = {"loss": bound, "optimizer.": bound}
    if updates:
        limits["model."] = _UPDATE
    noise = _updates_of_noise(expected)
    problems = []
    for kind, limit in limits.items():
        names = [name for name in expected if name.startswith(kind) and name not in noise]
        floor = _FLOOR * _norm([expected[name] for name in names])
        for name in names:
            share = _norm([result[name] - expected[name]]) / (_norm([expected[name]]) + floor)
            if not share <= limit:  # NaN exceeds every bound
                problems.append((share, f"{name} differs by {share:.2g} of its size; at most {limit:g} is allowed"))
    _, largest = max(problems, default=(0.0, ""))
    return largest


def _updates_of_noise(expected: StepResult) -> set[str]:
    """Return the names of the updates by gradients that are noise, as first moments show them."""
    moments = [name for name in expected if name.startswith("optimizer.") and name.endswith(".first")]
    largest_noise = _NOISE * _norm([expected[name] for name in moments])
    noise = [name for name in moments if _norm([expected[name]]) < largest_noise]
    return {f"model.{name.removeprefix('optimizer.').removesuffix('.first')}" for name in noise}


def _norm(tensors: list[Tensor]) -> float:
    return float(torch.stack([tensor.double().norm() for tensor in tensors]).norm()) if tensors else 0.0
