"""Fit the three numbers of a `Calibration` to published A100 results, and compare forecasts with them."""

import math
from collections.abc import Collection
from functools import cache
from statistics import median
from typing import Literal, NamedTuple, get_args

import numpy as np

from bertbench.common.published_results import PublishedResult
from bertbench.plan.calibrating_results import GPUS_OF_NODE, calibrating, forecast_results, method_of
from bertbench.plan.convergence import samples_to_converge
from bertbench.plan.step_time import Calibration, Gpu, Work, run_seconds

_START = (0.5, 0.5, 0.002)
_LOW, _HIGH = (0.2, 0.1, 1e-6), (0.9, 1.0, 0.02)
_ROUNDS, _STEP = 12, 1e-6


class Comparison(NamedTuple):
    """A published time beside a forecast that used neither its row nor others left out with it."""

    row: PublishedResult
    calibrated: Calibration
    predicted_s: float

    @property
    def error(self) -> float:
        """Return the relative error: 0.1 is 10 % too long."""
        return self.predicted_s / self.row.seconds - 1


def _compared(
    row: PublishedResult, gpu: Gpu, calibrated: Calibration, left_out: Collection[PublishedResult]
) -> Comparison:
    samples = samples_to_converge(row.global_batch_size, row.hyper_parameters, _without(left_out)).number
    return Comparison(row, calibrated, run_seconds(_work(row, gpu)._replace(samples=samples), calibrated).total)


def fit(left_out: Collection[PublishedResult] = ()) -> Calibration:
    """Fit by least squares of log time over the rows that calibrate, without those that are left out altogether.

    What is fitted is speed, so each run counts with the samples that it took: forecast samples would bend the speed to
    make up for their error.
    """
    rows = [row for row in _without(left_out) if row in calibrating()]
    works = [_work(row, "a100") for row in rows]

    def errors(numbers: np.ndarray) -> np.ndarray:
        found = Calibration(*numbers.tolist())
        pairs = zip(works, rows, strict=True)
        return np.array([math.log(run_seconds(work, found).total / row.seconds) for work, row in pairs])

    numbers = np.array(_START)
    for _ in range(_ROUNDS):  # Gauss-Newton: scipy's least_squares finds the same, and takes 0.4 s to import
        now = errors(numbers)
        slopes = np.stack([(errors(numbers + step) - now) / step.sum() for step in np.diag(_STEP * numbers)], axis=1)
        numbers = np.clip(numbers - np.linalg.lstsq(slopes, now)[0], _LOW, _HIGH)
    return Calibration(*numbers.tolist())


@cache
def calibration(gpu: Gpu = "a100") -> Calibration:
    """Return the calibration on all of them; another GPU keeps the A100s' network and waiting, with its own peak share.

    That share is the median of its published results on one node of 8 SXM GPUs, most of them computed in fp8.
    """
    if gpu == "a100":
        return fit()
    return calibration()._replace(compute_share=median(_shares(gpu).values()))


Group = Literal["row", "submitter", "scale"]
"""What is left out with a row: itself, all rows of its submitter, or all on as many GPUs."""
GROUPS: tuple[Group, ...] = get_args(Group)


@cache
def leave_out(group: Group) -> list[Comparison]:
    """Return the rows that calibrate, each with a forecast that uses neither times nor convergence of its group."""

    def key(row: PublishedResult) -> object:
        return {"row": row, "submitter": row.submitter, "scale": row.accelerators}[group]

    found: list[Comparison] = []
    rows = calibrating()
    for name in dict.fromkeys(map(key, rows)):
        left_out = [row for row in forecast_results() if key(row) == name]
        calibrated = fit(left_out)
        found += [_compared(row, "a100", calibrated, left_out) for row in left_out if row in rows]
    return found


@cache
def other_results(gpu: Gpu) -> list[Comparison]:
    """Forecast the results of a kind of GPU that don't calibrate forecasts.

    A100s (PCIe, other nodes) count as if on a DGX A100; another GPU's peak share is that of its other results.
    """
    shares, found = {} if gpu == "a100" else _shares(gpu), []
    for row in forecast_results():
        if gpu.upper() in row.accelerator and row.accelerators is not None and row not in calibrating():
            others = [share for other, share in shares.items() if other is not row]
            calibrated = calibration()._replace(compute_share=median(others)) if others else calibration()
            found.append(_compared(row, gpu, calibrated, [row]))
    return found


@cache
def _shares(gpu: Gpu) -> dict[PublishedResult, float]:
    """Return the share of peak that each result on one node of 8 SXM GPUs of this kind reached."""
    fitted, shares = calibration(), {}
    for row in forecast_results():
        if f"{gpu.upper()}-SXM" in row.accelerator and (row.accelerators, row.nodes) == (GPUS_OF_NODE, 1):
            parts = run_seconds(_work(row, gpu), fitted)
            fixed = parts.start_up + parts.communication + parts.waiting
            shares[row] = fitted.compute_share * (parts.total - fixed) / (row.seconds - fixed)
    return shares


def _work(row: PublishedResult, gpu: Gpu) -> Work:
    """Return a published run's work; the row must give its number of GPUs."""
    assert row.accelerators is not None
    return Work(gpu, row.accelerators, row.nodes, row.global_batch_size, row.samples_to_converge, method_of(row))


def _without(left_out: Collection[PublishedResult]) -> list[PublishedResult]:
    return [row for row in forecast_results() if row not in left_out]
