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
from bertbench.plan.step_time import Calibration, Gpu, Workload, run_seconds

_START = Calibration(compute_share=0.5, network_share=0.5, waiting_s=0.002)
_LOWEST = Calibration(compute_share=0.2, network_share=0.1, waiting_s=1e-6)
_HIGHEST = Calibration(compute_share=0.9, network_share=1.0, waiting_s=0.02)
_ROUNDS = 12
_STEP = 1e-6  # share of a number by which it is changed to find a slope


class HeldOutForecast(NamedTuple):
    """A published time compared with a forecast that used neither its row nor others left out with it."""

    row: PublishedResult
    calibrated: Calibration
    predicted_s: float

    @property
    def error(self) -> float:
        """Return the relative error: 0.1 is 10 % too long."""
        return self.predicted_s / self.row.seconds - 1


def _compared(
    row: PublishedResult, gpu: Gpu, calibrated: Calibration, left_out: Collection[PublishedResult]
) -> HeldOutForecast:
    samples = samples_to_converge(row.global_batch_size, row.hyper_parameters, _without(left_out)).number
    return HeldOutForecast(
        row, calibrated, run_seconds(_workload(row, gpu)._replace(samples=samples), calibrated).total
    )


def fit_calibration(left_out: Collection[PublishedResult] = ()) -> Calibration:
    """Fit by least squares of log time over the rows that calibrate, without those that are left out altogether.

    What is fitted is speed, so each run counts with the samples that it took: forecast samples would bend the speed to
    make up for their error.
    """
    rows = [row for row in _without(left_out) if row in calibrating()]
    workloads = [_workload(row, "a100") for row in rows]

    def errors(numbers: np.ndarray) -> np.ndarray:
        calibrated = Calibration(*numbers.tolist())
        forecasts = [run_seconds(workload, calibrated).total for workload in workloads]
        return np.array([math.log(seconds / row.seconds) for seconds, row in zip(forecasts, rows, strict=True)])

    numbers = np.array(_START)
    for _ in range(_ROUNDS):  # Gauss-Newton: scipy's least_squares finds the same, and takes 0.4 s to import
        residuals = errors(numbers)
        slopes = []
        for number, change in enumerate(_STEP * numbers):
            changed = numbers.copy()
            changed[number] += change
            slopes.append((errors(changed) - residuals) / change)
        solution, *_ = np.linalg.lstsq(np.stack(slopes, axis=1), residuals)
        numbers = np.clip(numbers - solution, _LOWEST, _HIGHEST)
    return Calibration(*numbers.tolist())


@cache
def calibration(gpu: Gpu = "a100") -> Calibration:
    """Return the calibration on all of them; another GPU keeps the A100s' network and waiting, with its own peak share.

    That share is the median of its published results on one node of 8 SXM GPUs, most of them computed in fp8.
    """
    if gpu == "a100":
        return fit_calibration()
    return calibration()._replace(compute_share=median(_shares(gpu).values()))


Group = Literal["row", "submitter", "scale"]
"""What is left out with a row: itself, all rows of its submitter, or all on as many GPUs."""
GROUPS: tuple[Group, ...] = get_args(Group)


@cache
def leave_out(group: Group) -> list[HeldOutForecast]:
    """Return the rows that calibrate, each with a forecast that uses neither times nor convergence of its group."""

    def key(row: PublishedResult) -> object:
        return {"row": row, "submitter": row.submitter, "scale": row.accelerators}[group]

    comparisons: list[HeldOutForecast] = []
    rows = calibrating()
    for name in dict.fromkeys(map(key, rows)):
        left_out = [row for row in forecast_results() if key(row) == name]
        calibrated = fit_calibration(left_out)
        comparisons += [_compared(row, "a100", calibrated, left_out) for row in left_out if row in rows]
    return comparisons


@cache
def other_results(gpu: Gpu) -> list[HeldOutForecast]:
    """Forecast the results of a kind of GPU that don't calibrate forecasts.

    A100s (PCIe, other nodes) count as if on a DGX A100; another GPU's peak share is that of its other results.
    """
    shares = {} if gpu == "a100" else _shares(gpu)
    comparisons = []
    for row in forecast_results():
        if gpu.upper() in row.accelerator and row.accelerators is not None and row not in calibrating():
            calibrated = calibration()
            other_shares = [share for other, share in shares.items() if other is not row]
            if other_shares:
                calibrated = calibrated._replace(compute_share=median(other_shares))
            comparisons.append(_compared(row, gpu, calibrated, [row]))
    return comparisons


@cache
def _shares(gpu: Gpu) -> dict[PublishedResult, float]:
    """Return the share of peak that each result on one node of 8 SXM GPUs of this kind reached."""
    fitted, shares = calibration(), {}
    for row in forecast_results():
        if f"{gpu.upper()}-SXM" in row.accelerator and (row.accelerators, row.nodes) == (GPUS_OF_NODE, 1):
            parts = run_seconds(_workload(row, gpu), fitted)
            fixed = parts.start_up + parts.communication + parts.waiting
            shares[row] = fitted.compute_share * (parts.total - fixed) / (row.seconds - fixed)
    return shares


def _workload(row: PublishedResult, gpu: Gpu) -> Workload:
    """Return a published run's workload; the row must give its number of GPUs."""
    assert row.accelerators is not None
    return Workload(
        gpu=gpu,
        gpus=row.accelerators,
        nodes=row.nodes,
        global_batch_size=row.global_batch_size,
        samples=row.samples_to_converge,
        method=method_of(row),
    )


def _without(left_out: Collection[PublishedResult]) -> list[PublishedResult]:
    return [row for row in forecast_results() if row not in left_out]
