"""Sum up a run's FLOP/s: the rate of each step (metrics.jsonl), and the peak for MFU (peak.json)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from bertbench.runs.json_files import Row
from compliance.read.run import number


@dataclass(frozen=True)
class RunFlops:
    """A run's FLOP/s over the time of all its steps, for the model without padding; None if unknown."""

    tflops_per_device: float | None
    """10^12 operations a second on one device; on a CPU, of one rank."""
    mfu: float | None
    """Model FLOP utilisation: the rate's share of the device's peak."""
    hfu: float | None
    """The same, including operations that recomputation repeats; None in runs that don't recompute."""
    peak_tflops: float | None
    peak_source: str | None
    """The source of the peak, or the reason why there is none."""
    number_format: str | None

    def text(self) -> str:
        """Return a sentence with the rates; empty if the run has none."""
        if self.tflops_per_device is None:
            return ""
        rate = f"FLOP/s: {self.tflops_per_device:.3g} TFLOP/s per device"
        if self.mfu is None or self.peak_tflops is None:
            return f"{rate}; MFU unknown: {self.peak_source or 'the run has no peak.json'}"
        recomputed = "" if self.hfu is None else f", {self.hfu:.1%} with recomputation"
        peak = f"{self.peak_tflops:.3g} in {self.number_format}"
        return f"{rate}, MFU {self.mfu:.1%}{recomputed}; peak {peak}: {self.peak_source}"


def flops_of(steps: Sequence[Row], peak: Mapping[str, Any]) -> RunFlops:
    """Return the FLOP/s of a run from its lines of metrics.jsonl and the content of peak.json."""
    return RunFlops(
        tflops_per_device=_mean_over_time(steps, "tflops_per_device"),
        mfu=_mean_over_time(steps, "mfu"),
        hfu=_mean_over_time(steps, "hfu"),
        peak_tflops=number(peak.get("tflops")),
        peak_source=_text(peak, "source"),
        number_format=_text(peak, "number_format"),
    )


def mean_flop_rates(runs: Sequence[RunFlops]) -> RunFlops:
    """Return the mean rates of runs on devices with the same peak."""
    return replace(
        runs[0],
        tflops_per_device=_mean([run.tflops_per_device for run in runs]),
        mfu=_mean([run.mfu for run in runs]),
        hfu=_mean([run.hfu for run in runs]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _text(content: Mapping[str, Any], key: str) -> str | None:
    value = content.get(key)
    return value if isinstance(value, str) else None


def _mean_over_time(steps: Sequence[Row], field: str) -> float | None:
    """Return the mean of a rate over the time of the steps that have it."""
    total_ms = 0.0
    total = 0.0
    for row in steps:
        step_ms = number(row.get("step_ms"))
        rate = number(row.get(field))
        if step_ms is not None and rate is not None:
            total_ms += step_ms
            total += step_ms * rate
    return total / total_ms if total_ms > 0 else None
