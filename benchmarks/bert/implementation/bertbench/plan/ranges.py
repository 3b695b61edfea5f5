"""Estimate forecast errors from published results of the same kind of machine, and warn outside their range.

Every result is forecast by a calibration without it. A forecast's range covers nine of ten errors of its kind.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from statistics import median
from typing import NamedTuple

import numpy as np

from bertbench.config.system import System
from bertbench.plan.calibrate import leave_out, other_results
from bertbench.plan.calibrating_results import GPUS_OF_NODE, calibrating
from bertbench.plan.step_time import HARDWARE, Gpu

_FEWEST = 5  # results that make a kind: with fewer, nine of ten has no meaning
_OUTSIDE = 0.05  # share outside the range on each side


class Kind(NamedTuple):
    """Machines with similar forecast errors."""

    gpu: Gpu
    pcie: bool
    whole: bool
    """Nodes of 8 GPUs, like those in the calibration."""
    one_node: bool | None
    """None for A100s in whole nodes, where the network is calibrated and both cases count as one."""

    def __str__(self) -> str:
        form = "PCIe" if self.pcie else "SXM"
        nodes = "" if self.one_node is None else ", one node" if self.one_node else ", several nodes"
        return f"{self.gpu.upper()} {form}{', 8 a node' if self.whole else ', not 8 a node'}{nodes}"


class Range(NamedTuple):
    """The time to train, with its range."""

    low_min: float
    middle_min: float
    """The forecast, corrected by the median error."""
    high_min: float
    source: str
    """The published results whose errors define the range."""

    def __str__(self) -> str:
        """Return the time and its range to two significant digits, in seconds if it may be below a minute."""
        unit, a_minute = ("s", 60.0) if self.low_min < 1 else ("min", 1.0)
        times = (self.low_min, self.middle_min, self.high_min)
        low, middle, high = (f"{float(f'{a_minute * minutes:.2g}'):g}" for minutes in times)
        return f"{middle} {unit} ({low} to {high})"


def kind(gpu: Gpu, accelerator: str, gpus: int, nodes: int) -> Kind:
    """Return the kind of a machine; `accelerator` is the card's name, which tells PCIe cards from SXM modules."""
    pcie, whole = "pci" in accelerator.lower(), gpus == GPUS_OF_NODE * nodes
    return Kind(gpu, pcie, whole, None if gpu == "a100" and whole and not pcie else nodes == 1)


def range_of(system: System, gpu: Gpu, minutes: float, card: str | None = None) -> Range:
    """Return the range of a forecast of `minutes`, from errors on the results most similar to the system."""
    own = kind_of(system, gpu, card)
    errors, named = _nearest(own)
    low, high = _middle(errors)
    source = f"{len(errors)} published results: {named}"
    # error is forecast / published - 1
    return Range(minutes / (1 + high), minutes / (1 + median(errors)), minutes / (1 + low), source)


def covered(errors: Sequence[float]) -> int:
    """Return how many errors lie in the range that the others make: a forecast's own result is not in its range."""
    ranges = [_middle([*errors[:place], *errors[place + 1 :]]) for place in range(len(errors))]
    return sum(low <= error <= high for error, (low, high) in zip(errors, ranges, strict=True))


def _middle(errors: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the middle nine tenths."""
    low, high = np.quantile(errors, (_OUTSIDE, 1 - _OUTSIDE))
    return float(low), float(high)


def warnings(system: System, gpu: Gpu, card: str | None = None) -> Iterator[str]:
    """Yield how a system differs from the calibration, and how such published results differed from forecasts."""
    own = kind_of(system, gpu, card)
    errors, named = _nearest(own)
    if own.pcie:
        longer = sorted(1 / (1 + error) - 1 for error in errors)
        yield (
            "PCIe cards: calibrated on SXM modules, which draw more power and have NVLink between all GPUs; "
            f"{len(errors)} published results ({named}) took {longer[0]:.0%} to {longer[-1]:.0%} longer than forecast"
        )
    if not own.whole:
        yield f"{system.launch.ranks_per_node} GPUs a node: calibrated on nodes of {GPUS_OF_NODE}, joined by NVSwitch"
    if system.world_size > (most := max(row.accelerators or 0 for row in calibrating())):
        yield f"{system.world_size:,} GPUs: calibrated on at most {most:,}"
    if gpu != "a100" and system.hardware.number_of_nodes > 1:
        yield f"several nodes of {gpu.upper()}s: network and waiting times are taken from A100s"
    if gpu != "a100":
        yield f"precision.compute {system.precision.compute}: most published {gpu.upper()} results compute in fp8"
    if named != str(own):
        yield f"no published result is of this kind ({own}): the range is taken from {named}"


def kind_of(system: System, gpu: Gpu, card: str | None = None) -> Kind:
    """Return the kind of a system's machine; `card` says the form of a GPU that isn't the system's own."""
    name = card or system.hardware.accelerator_model_name
    if gpu.upper() not in name.upper():
        name = ""
    return kind(gpu, name, system.world_size, system.hardware.number_of_nodes)


def _nearest(own: Kind) -> tuple[list[float], str]:
    """Return errors and the name of their results: the kind's, else all results that share most of its properties."""
    if len(known := _errors(own.gpu).get(own, [])) >= _FEWEST:
        return known, str(own)
    form = "PCIe" if own.pcie else "SXM"
    if same := _of_form(own.gpu, own.pcie):
        return same, f"all {own.gpu.upper()} {form}"
    return [error for gpu in HARDWARE for error in _of_form(gpu, own.pcie)], f"all {form}"


def _of_form(gpu: Gpu, pcie: bool) -> list[float]:
    return [error for other, errors in _errors(gpu).items() if other.pcie == pcie for error in errors]


@cache
def _errors(gpu: Gpu) -> dict[Kind, list[float]]:
    """Return errors of published results by kind."""
    found: dict[Kind, list[float]] = {}
    for one in (*(leave_out("row") if gpu == "a100" else ()), *other_results(gpu)):
        row = one.row
        assert row.accelerators is not None
        found.setdefault(kind(gpu, row.accelerator, row.accelerators, row.nodes), []).append(one.error)
    return found
