"""Find a device's peak rate of matrix products in a run's number format: the divisor of model FLOP utilisation (MFU).

A GPU's peak comes from its data sheet (gpu_peaks.py). A CPU's data sheet states no peak, so the rate that products of
large square matrices reach is used instead. All ranks multiply at the same time, as they do in training. Other programs
may slow a measurement, so each run measures, and a clearly higher rate replaces the one that a cache keeps.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from bertbench.common.paths import cache_folder
from bertbench.common.phase_clock import wait_for_device
from bertbench.distributed.cores import available_cores
from bertbench.distributed.world import World
from bertbench.machine.gpu_peaks import DENSE_TFLOPS, SOURCE, gpu_kind
from bertbench.machine.measurements import read_measurements, remember_measurement
from bertbench.machine.processor import instructions, processor
from bertbench.model.arithmetic import autocast_type
from bertbench.model.linear import Library, forward_product, onednn_multiplies
from bertbench.model.options import PrecisionName, without_fp8

SIZE = 1024
"""Rows of the square matrices. Small matrices stay in cache and reach 189 GFLOP/s on a Xeon; large ones reach 110."""
_ROUNDS = 5
_CLEARLY = 1.05  # on an idle machine, two measurements differ by about 1 %, and equal runs should have one peak


@dataclass(frozen=True)
class PeakRate:
    """The peak of one rank's device; its fields are those of peak.json."""

    tflops: float | None
    """10^12 operations a second; None if unknown."""
    number_format: str
    """The format of the operands: fp32, tf32, bf16 or fp16."""
    device: str
    source: str
    """Where the figure comes from, or why there is none."""

    def text(self) -> str:
        """Return the peak in a line, for the run's output."""
        if self.tflops is None:
            return f"peak: unknown ({self.source})"
        return f"peak: {self.tflops:.3g} TFLOP/s per device in {self.number_format} ({self.source})"


def peak_rate(precision: PrecisionName, world: World) -> PeakRate:
    """Return the peak of a run's devices in `precision`. CPU ranks measure it, in less than a second. Collective.

    For fp8, return the peak of bf16, as papers do: attention and the heads stay in bf16.
    """
    precision = without_fp8(precision)
    if world.device.type == "cuda":
        return gpu_peak(torch.cuda.get_device_name(world.device), _operands_on_gpu(precision))
    return _cpu_peak(precision, world)


def gpu_peak(device_name: str, number_format: str) -> PeakRate:
    """Return the peak of a GPU, looked up by the name that its driver gives."""
    kind = gpu_kind(device_name)
    if kind is None:
        return PeakRate(None, number_format, device_name, f"{device_name} isn't in the table of data-sheet peaks")
    tflops = DENSE_TFLOPS[kind].get(number_format)
    source = SOURCE if tflops else f"its data sheet states no rate in {number_format}"
    return PeakRate(tflops, number_format, device_name, source)


def _operands_on_gpu(precision: PrecisionName) -> str:
    """Return the format in which a GPU multiplies: torch may round float32 operands for its tensor cores."""
    if precision == "fp32" and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return precision


def _cpu_peak(precision: PrecisionName, world: World) -> PeakRate:
    cache = cache_folder() / "peak.json"
    key = (
        f"{processor()} {instructions()}, torch {torch.__version__}, {world.ranks.local_size} ranks of "
        f"{torch.get_num_threads()} threads on {available_cores()} cores, {precision}"
    )
    rates = world.from_all(square_product_flops(autocast_type(precision) or torch.float32, world.device, (SIZE,)))
    now = sum(rates) / len(rates) / 1e12
    before = read_measurements(cache).get(key) if world.leads else None
    if isinstance(before, float) and now < _CLEARLY * before:
        now = before
    elif world.leads:
        remember_measurement(cache, key, now)
    tflops = world.from_all(now)[0]
    ranks = "1 rank" if world.size == 1 else f"{world.size} ranks at once"
    return PeakRate(tflops, precision, processor(), f"measured: {SIZE} x {SIZE} matmuls on {ranks}")


def square_product_flops(dtype: torch.dtype, device: torch.device, sizes: Sequence[int]) -> float:
    """Return the highest rate, in floating-point operations a second, among products of square matrices of these sizes.

    On a CPU, take the faster of two libraries: torch's (MKL for fp32) and oneDNN.
    """
    has_onednn = device.type == "cpu" and onednn_multiplies(dtype)
    libraries: list[Library] = ["torch", "onednn"] if has_onednn else ["torch"]
    generator = torch.Generator(device).manual_seed(1)  # leaves the run's own random state unchanged
    most = 0.0
    for size in sizes:
        left, weight = torch.randn(2, size, size, generator=generator, device=device).to(dtype)
        multiply = partial(forward_product, left, weight, torch.zeros_like(left[0]))
        seconds = []
        for library in _ROUNDS * libraries:
            wait_for_device(device)
            began = time.perf_counter()
            multiply(library)
            wait_for_device(device)
            seconds.append(time.perf_counter() - began)
        most = max(most, 2.0 * size**3 / min(seconds))
    return most
