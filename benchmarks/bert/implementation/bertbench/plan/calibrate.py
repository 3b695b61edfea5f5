"""Fit the three numbers of a `Calibration` to published A100 results, and compare forecasts with published results."""

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
_STEP = 1e-6  # relative change of a number, to compute a derivative


class HeldOutForecast(NamedTuple):
    """A published time, and a forecast whose calibration left out that result and its group."""

    row: PublishedResult
    calibrated: Calibration
    predicted_s: float

    @property
    def error(self) -> float:
        """Return the relative error: 0.1 means that the forecast is 10 % too long."""
        return self.predicted_s / self.row.seconds - 1


def _compared(
    row: PublishedResult, gpu: Gpu, calibrated: Calibration, left_out: Collection[PublishedResult]
) -> HeldOutForecast:
    samples = samples_to_converge(row.global_batch_size, row.hyper_parameters, _without(left_out)).number
    return HeldOutForecast(
        row, calibrated, run_seconds(_workload(row, gpu)._replace(samples=samples), calibrated).total
    )


def fit_calibration(left_out: Collection[PublishedResult] = ()) -> Calibration:
    """Fit by least squares of log time over the calibrating results, except those in `left_out`.

    The fit is about speed, so each run counts with the samples that it actually took. With forecast samples, errors in
    the number of samples would distort the speed.
    """
    rows = [row for row in _without(left_out) if row in calibrating()]
    workloads = [_workload(row, "a100") for row in rows]

    def errors(numbers: np.ndarray) -> np.ndarray:
        calibrated = Calibration(*numbers.tolist())
        forecasts = [run_seconds(workload, calibrated).total for workload in workloads]
        return np.array([math.log(seconds / row.seconds) for seconds, row in zip(forecasts, rows, strict=True)])

    numbers = np.array(_START)
    for _ in range(_ROUNDS):  # Gauss-Newton; scipy's least_squares finds the same, but takes 0.4 s to import
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
    """Return the calibration on all calibrating results.

    For a GPU other than the A100, network share and waiting time are the A100's, but the share of peak is its own: the
    median of its published results on one node of 8 SXM GPUs. Most of these results computed in fp8.
    """
    if gpu == "a100":
        return fit_calibration()
    return calibration()._replace(compute_share=median(_shares(gpu).values()))


Group = Literal["row", "submitter", "scale"]
"""What to leave out with a row: only itself, all rows of its submitter, or all rows with the same number of GPUs."""
GROUPS: tuple[Group, ...] = get_args(Group)


@cache
def leave_out(group: Group) -> list[HeldOutForecast]:
    """Return the calibrating rows, each with a forecast that uses neither times nor convergence of the row's group."""

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
    """Forecast those results of a kind of GPU that don't calibrate forecasts.

    A100s (PCIe cards, other nodes) are forecast as if they were on a DGX A100. For another GPU, the share of peak comes
    from its other results.
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
    """Return the share of peak that each result on one node of 8 such SXM GPUs reached."""
    fitted, shares = calibration(), {}
    for row in forecast_results():
        if f"{gpu.upper()}-SXM" in row.accelerator and (row.accelerators, row.nodes) == (GPUS_OF_NODE, 1):
            parts = run_seconds(_workload(row, gpu), fitted)
            fixed = parts.start_up + parts.communication + parts.waiting
            shares[row] = fitted.compute_share * (parts.total - fixed) / (row.seconds - fixed)
    return shares


def _workload(row: PublishedResult, gpu: Gpu) -> Workload:
    """Return the workload of a published run; the row must state the number of GPUs."""
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
