"""Fit the three numbers of a `Calibration` to published A100 results, and compare forecasts with them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from scipy.optimize import least_squares

from bertbench.forecast.convergence import samples_to_converge
from bertbench.forecast.published import calibrates, method_of, published_results
from bertbench.forecast.step import Calibration, Gpu, Work, run_seconds
from bertbench.report.published import Published

_START = (0.5, 0.5, 0.002)
_LOW, _HIGH = (0.2, 0.1, 0.0), (0.9, 1.0, 0.02)


@dataclass(frozen=True)
class Comparison:
    """A published time beside a forecast that didn't use its row."""

    row: Published
    predicted_s: float

    @property
    def error(self) -> float:
        """Return the relative error: 0.1 is 10 % too long."""
        return self.predicted_s / self.row.seconds - 1


def fit(rows: Sequence[Published], known: Sequence[Published]) -> Calibration:
    """Fit by least squares of log time over `rows`; `known` gives samples to converge.

    A row never uses its own samples to converge: each is forecast from the others.
    """
    works = [work_of(row, "a100", _without(known, row)) for row in rows]

    def errors(numbers: Sequence[float]) -> list[float]:
        calibration = Calibration(*(float(number) for number in numbers))
        return [
            math.log(run_seconds(work, calibration).total / row.seconds) for work, row in zip(works, rows, strict=True)
        ]

    found = least_squares(errors, _START, bounds=(_LOW, _HIGH), x_scale=_START)
    return Calibration(*map(float, found.x))


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
    return [_compared(row, fit(_without(chosen, row), _without(rows, row)), _without(rows, row)) for row in chosen]


@cache
def other_a100s() -> list[Comparison]:
    """Forecast every other A100 result (PCIe, 40 GB, small nodes) as if on a DGX A100."""
    rows = published_results()
    fitted = calibration()
    return [
        _compared(row, fitted, _without(rows, row))
        for row in rows
        if "A100" in row.accelerator and not calibrates(row) and row.accelerators is not None
    ]


def other_gpus(gpu: Gpu) -> list[Comparison]:
    """Forecast every result of this kind of GPU, without A100s, by a calibration that excludes it."""
    rows, shares = published_results(), _shares(gpu)
    held = []
    for row in rows:
        if gpu.upper() not in row.accelerator or row.accelerators is None:
            continue
        share = median(value for other, value in shares.items() if other is not row)
        fitted = replace(calibration(), compute_share=share)
        held.append(Comparison(row, run_seconds(work_of(row, gpu, _without(rows, row)), fitted).total))
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


def _compared(row: Published, fitted: Calibration, known: Sequence[Published]) -> Comparison:
    return Comparison(row, run_seconds(work_of(row, "a100", known), fitted).total)


def _without(rows: Sequence[Published], one: Published) -> list[Published]:
    return [row for row in rows if row is not one]
