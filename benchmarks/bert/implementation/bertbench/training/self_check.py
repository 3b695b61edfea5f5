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
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple

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


class FastPath(NamedTuple):
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
        "bf16",
        "fp32",
        "precision.compute=fp32",
        "16 bits",
        lambda chosen: without_fp8(chosen.precision) == "bf16",
        {"precision": "fp32"},
    ),
    FastPath("oneDNN matmuls", "torch matmul", "compute.products=torch", "16 bits", _by_onednn, {"products": ()}),
    FastPath(
        "torch.compile",
        "torch's own operations",
        "compute.compile=none",
        "16 bits",
        lambda chosen: chosen.compile != "none",
        {"compile": "none"},
    ),
    FastPath(
        "bf16 residual",
        "hidden states in fp32",
        "precision.residual=fp32",
        "16 bits",
        lambda chosen: without_fp8(chosen.precision) == "bf16" and chosen.residual == "bf16",
        {"residual": "fp32"},
        ("bf16",),
    ),
    FastPath(
        "fp8",
        "bf16",
        "precision.compute=bf16",
        "8 bits",
        lambda chosen: chosen.precision == "fp8",
        {"precision": "bf16"},
        ("bf16",),
    ),
    FastPath(
        "Triton optimizer",
        "torch's optimizer",
        "optimizer.impl=torch",
        "as before",
        lambda chosen: chosen.impl == "triton",
        {"impl": "torch"},
    ),
    FastPath(
        "apex's optimizer",
        "torch's optimizer",
        "optimizer.impl=torch",
        "as before",
        lambda chosen: chosen.impl == "apex",
        {"impl": "torch"},
    ),
    FastPath(
        "CUDA graphs",
        "steps without graphs",
        "compute.compile=default",
        "as before",
        lambda chosen: chosen.compile == "graphs",
        {"compile": "default"},
        ("bf16", "torch.compile"),
        masks_problem,
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
    off = {path.name for path in paths}
    plain = without(fastest, off)
    expected = take(plain.applied(system), world, dict(plain.products))
    refused = []
    groups = [list(group) for _, group in groupby(paths, attrgetter("rounding"))]
    while groups:
        group = groups.pop(0)
        result, problem = _try_paths(group, fastest, off, expected, take, system, world)
        problems = [text for text in world.from_all(problem) if text]
        if not problems:
            off.difference_update(path.name for path in group)
            expected = result
        elif len(group) > 1:
            groups = [[path] for path in group] + groups
        else:
            refused.append(f"{group[0].name} refused: {problems[0]}; using {group[0].instead} instead")
    # Each step's trainer is part of a cycle, like its compiled layers, and takes 0.9 GB with BERT-Large's vocabulary
    gc.collect()
    return replace(without(fastest, off), checked=tuple(path.name for path in paths), refused=tuple(refused))


def _try_paths(
    group: Sequence[FastPath],
    fastest: Arithmetic,
    off: Collection[str],
    expected: StepResult,
    take: TakeStep,
    system: System,
    world: World,
) -> tuple[StepResult, str]:
    """Take a step with a group of paths beside those that aren't `off`; return its result and what is wrong with it."""
    names = [path.name for path in group]
    still_off = [name for name in off if name not in names]
    for path in group:
        for name in path.needs:
            if name in still_off:
                return {}, f"needs {name}, which was refused"
    trial = without(fastest, still_off)
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
