"""Estimate forecast errors from published results of the same kind of machine, and warn about unusual systems.

Each published result is forecast by a calibration that leaves it out. The range of a forecast covers nine of ten such
errors for its kind of machine.
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

_FEWEST = 5  # results that a kind needs: with fewer, nine of ten has no meaning
_OUTSIDE = 0.05  # share of errors beyond the range, on each side


class MachineKind(NamedTuple):
    """Machines with similar forecast errors."""

    gpu: Gpu
    pcie: bool
    eight_a_node: bool
    """Whether nodes have 8 GPUs, like those in the calibration."""
    one_node: bool | None
    """None for nodes of 8 A100s: their network is calibrated, so one node and several nodes count as one kind."""

    @property
    def form(self) -> str:
        """Return the form factor of the cards."""
        return "PCIe" if self.pcie else "SXM"

    def __str__(self) -> str:
        parts = [f"{self.gpu.upper()} {self.form}", f"{'' if self.eight_a_node else 'not '}8 per node"]
        if self.one_node is not None:
            parts.append("one node" if self.one_node else "several nodes")
        return ", ".join(parts)


class TimeRange(NamedTuple):
    """The time to train and its range."""

    low_min: float
    middle_min: float
    """The forecast, corrected by the median error."""
    high_min: float
    source: str
    """The published results whose errors determine the range."""

    def __str__(self) -> str:
        """Return the time and its range to two significant digits, in seconds if it may be below a minute."""
        in_seconds = self.low_min < 1

        def rounded(minutes: float) -> str:
            time = 60 * minutes if in_seconds else minutes
            return f"{float(f'{time:.2g}'):g}"

        unit = "s" if in_seconds else "min"
        return f"{rounded(self.middle_min)} {unit} ({rounded(self.low_min)} to {rounded(self.high_min)})"


def machine_kind(gpu: Gpu, accelerator: str, gpus: int, nodes: int) -> MachineKind:
    """Return the kind of a machine; the card's name, `accelerator`, distinguishes PCIe cards from SXM modules."""
    pcie = "pci" in accelerator.lower()
    eight_a_node = gpus == GPUS_OF_NODE * nodes
    has_calibrated_network = gpu == "a100" and eight_a_node and not pcie
    return MachineKind(gpu, pcie, eight_a_node, None if has_calibrated_network else nodes == 1)


def range_of(system: System, gpu: Gpu, minutes: float, card: str | None = None) -> TimeRange:
    """Return the range of a forecast of `minutes`, based on errors for the results most similar to the system."""
    errors, results = _nearest(machine_of(system, gpu, card))
    low, high = _middle(errors)
    # error is forecast / published - 1
    return TimeRange(
        low_min=minutes / (1 + high),
        middle_min=minutes / (1 + median(errors)),
        high_min=minutes / (1 + low),
        source=f"{len(errors)} published results: {results}",
    )


def covered(errors: Sequence[float]) -> int:
    """Return how many errors lie within the range of the other errors, the error in question left out."""
    count = 0
    for place, error in enumerate(errors):
        low, high = _middle([*errors[:place], *errors[place + 1 :]])
        if low <= error <= high:
            count += 1
    return count


def _middle(errors: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the interval that holds the middle nine tenths."""
    low, high = np.quantile(errors, (_OUTSIDE, 1 - _OUTSIDE))
    return float(low), float(high)


def calibration_warnings(system: System, gpu: Gpu, card: str | None = None) -> Iterator[str]:
    """Yield how a system differs from the calibration, and how published results with that difference turned out."""
    kind = machine_of(system, gpu, card)
    errors, results = _nearest(kind)
    if kind.pcie:
        longer = sorted(1 / (1 + error) - 1 for error in errors)
        yield (
            "PCIe cards: forecasts are calibrated on SXM modules, which draw more power and have NVLink between all "
            f"GPUs; {len(errors)} published results ({results}) took {longer[0]:.0%} to "
            f"{longer[-1]:.0%} longer than forecast"
        )
    if not kind.eight_a_node:
        yield (
            f"{system.launch.ranks_per_node} GPUs per node: forecasts are calibrated on nodes of {GPUS_OF_NODE}, "
            "connected by NVSwitch"
        )
    most = max(row.accelerators or 0 for row in calibrating())
    if system.world_size > most:
        yield f"{system.world_size:,} GPUs: forecasts are calibrated on at most {most:,}"
    if gpu != "a100" and system.hardware.number_of_nodes > 1:
        yield f"several nodes of {gpu.upper()}s: network and waiting times are taken from A100s"
    if gpu != "a100":
        yield f"precision.compute {system.precision.compute}: most published {gpu.upper()} results compute in fp8"
    if results != str(kind):
        yield f"too few published results of this kind ({kind}): the range is taken from {results}"


def machine_of(system: System, gpu: Gpu, card: str | None = None) -> MachineKind:
    """Return the kind of a system's machine; `card` is a GPU that replaces the system's own."""
    name = card or system.hardware.accelerator_model_name
    if gpu.upper() not in name.upper():
        name = ""
    return machine_kind(gpu, name, system.world_size, system.hardware.number_of_nodes)


def _nearest(kind: MachineKind) -> tuple[list[float], str]:
    """Return errors, and what their results are called: those of this kind, or else of the most similar kinds."""
    of_kind = errors_by_kind(kind.gpu).get(kind, [])
    if len(of_kind) >= _FEWEST:
        return of_kind, str(kind)
    of_gpu = _of_form(kind.gpu, kind.pcie)
    if of_gpu:
        return of_gpu, f"all {kind.gpu.upper()} {kind.form}"
    return [error for gpu in HARDWARE for error in _of_form(gpu, kind.pcie)], f"all {kind.form}"


def _of_form(gpu: Gpu, pcie: bool) -> list[float]:
    return [error for kind, errors in errors_by_kind(gpu).items() if kind.pcie == pcie for error in errors]


@cache
def errors_by_kind(gpu: Gpu) -> dict[MachineKind, list[float]]:
    """Return the errors of published results, by kind of machine."""
    comparisons = list(other_results(gpu))
    if gpu == "a100":
        comparisons = leave_out("row") + comparisons
    errors: dict[MachineKind, list[float]] = {}
    for comparison in comparisons:
        row = comparison.row
        assert row.accelerators is not None
        kind = machine_kind(gpu, row.accelerator, row.accelerators, row.nodes)
        errors.setdefault(kind, []).append(comparison.error)
    return errors
