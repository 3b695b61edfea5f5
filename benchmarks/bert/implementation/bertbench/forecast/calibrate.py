"""Fit the three numbers of a `Calibration` to published A100 results, and compare forecasts with them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import median

import numpy as np

from bertbench.forecast.convergence import samples_to_converge
from bertbench.forecast.published import calibrates, method_of, published_results
from bertbench.forecast.step import Calibration, Gpu, Work, run_seconds
from bertbench.report.published import Published

_START = (0.5, 0.5, 0.002)
_LOW, _HIGH = (0.2, 0.1, 1e-6), (0.9, 1.0, 0.02)
_ROUNDS, _STEP = 12, 1e-6


@dataclass(frozen=True)
class Comparison:
    """A published time beside a forecast that didn't use its row."""

    row: Published
    gpu: Gpu
    calibrated: Calibration
    known: Sequence[Published]
    """Rows that give samples to converge."""

    @cached_property
    def predicted_s(self) -> float:
        """Return the forecast."""
        return run_seconds(work_of(self.row, self.gpu, self.known), self.calibrated).total

    @property
    def error(self) -> float:
        """Return the relative error: 0.1 is 10 % too long."""
        return self.predicted_s / self.row.seconds - 1


def fit(rows: Sequence[Published], known: Sequence[Published]) -> Calibration:
    """Fit by least squares of log time over `rows`; `known` gives samples to converge.

    A row never uses its own samples to converge: each is forecast from the others.
    """
    works = [work_of(row, "a100", _without(known, row)) for row in rows]

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
    """Return the calibration on all 21 rows; another GPU keeps the A100s' network and waiting, with its own peak share.

    That share is the median of its published results on one node of 8 SXM GPUs, most of them computed in fp8.
    """
    rows = published_results()
    fitted = fit([row for row in rows if calibrates(row)], rows)
    if gpu == "a100":
        return fitted
    return replace(fitted, compute_share=median(_shares(gpu).values()))


@cache
def leave_one_out() -> list[Comparison]:
    """Return the 21 rows, each with a forecast that uses neither its time nor its convergence."""
    rows = published_results()
    chosen = [row for row in rows if calibrates(row)]
    return [
        Comparison(row, "a100", fit(_without(chosen, row), _without(rows, row)), _without(rows, row)) for row in chosen
    ]


@cache
def other_a100s() -> list[Comparison]:
    """Forecast every other A100 result (PCIe, 40 GB, small nodes) as if on a DGX A100."""
    rows = published_results()
    return [
        Comparison(row, "a100", calibration(), _without(rows, row))
        for row in rows
        if "A100" in row.accelerator and not calibrates(row) and row.accelerators is not None
    ]


@cache
def other_gpus(gpu: Gpu) -> list[Comparison]:
    """Forecast every result of this kind of GPU, without A100s, by a calibration that excludes it."""
    rows, shares = published_results(), _shares(gpu)
    held = []
    for row in rows:
        if gpu.upper() in row.accelerator and row.accelerators is not None:
            share = median(value for other, value in shares.items() if other is not row)
            held.append(Comparison(row, gpu, replace(calibration(), compute_share=share), _without(rows, row)))
    return held


@cache
def _shares(gpu: Gpu) -> dict[Published, float]:
    """Return the share of peak that each result on one node of 8 SXM GPUs of this kind reached."""
    rows, fitted, shares = published_results(), calibration(), {}
    for row in rows:
        if f"{gpu.upper()}-SXM" in row.accelerator and row.accelerators == 8 and row.nodes == 1:
            work = work_of(row, gpu, rows)._replace(samples=row.samples_to_converge)
            parts = run_seconds(work, fitted)
            fixed = parts.start_up + parts.communication + parts.waiting
            shares[row] = fitted.compute_share * (parts.total - fixed) / (row.seconds - fixed)
    return shares


def work_of(row: Published, gpu: Gpu, known: Sequence[Published]) -> Work:
    """Return a published run's work, with samples to converge from `known`. The row must give its number of GPUs."""
    assert row.accelerators is not None
    samples = samples_to_converge(row.global_batch_size, row.hyper_parameters, known).number
    return Work(gpu, row.accelerators, row.nodes, row.global_batch_size, samples, method_of(row))


def _without(rows: Sequence[Published], one: Published) -> list[Published]:
    return [row for row in rows if row is not one]
