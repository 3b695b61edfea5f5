"""Compute the least time of a step on a GPU: its arithmetic and its memory traffic at the data sheet's rates.

The two times can overlap, so the larger one is the bound. The traffic counts what a step writes and reads again:
weights, gradients, optimizer state, and activations that wait for the backward pass (activations.py). Pieces that
torch.compile fuses keep fewer activations, so by memory the bound is one for operations that aren't fused. It doesn't
count communication.
"""

from typing import NamedTuple

from bertbench.config import System
from bertbench.machine.gpu_peaks import DENSE_TFLOPS, MEMORY_BANDWIDTH, gpu_kind
from bertbench.model.options import unmeasured_precision
from bertbench.plan.memory import activation_bytes, memory_gb
from bertbench.plan.step_load import Microbatch, load_of

_GB = 1e9
_HELD = ("weights", "gradients", "optimizer")


class LeastStep(NamedTuple):
    """The least milliseconds of a step, by what limits it."""

    arithmetic: float
    memory: float


def least_step(system: System) -> LeastStep | None:
    """Return the least time of a step; None for CPUs, split models, and GPUs whose data sheet isn't in the tables.

    In fp8, attention and the heads compute in bf16, but all arithmetic counts at fp8's rate: the bound stays a bound.
    """
    kind = gpu_kind(system.hardware.accelerator_model_name)
    if system.launch.device != "cuda" or system.parallel.splits or kind is None:
        return None
    tflops = _peak_tflops(system, DENSE_TFLOPS[kind])
    if tflops is None:
        return None
    load = load_of(system)
    operations = load.flops / system.world_size
    mean_pairs = load.largest.pairs * load.mean_tokens / load.largest.tokens
    activations = system.parts * activation_bytes(system, Microbatch(load.mean_tokens, mean_pairs))
    memory = memory_gb(system)
    state = _GB * sum(memory[part] for part in _HELD)
    moved = 2 * (state + activations)  # written once and read once
    return LeastStep(
        arithmetic=1e3 * operations / (1e12 * tflops),
        memory=1e3 * moved / MEMORY_BANDWIDTH[kind],
    )


def _peak_tflops(system: System, peaks: dict[str, float]) -> float | None:
    """Return the peak of a system's products; None for a format that the GPU lacks.

    torch may round float32 operands to tf32 for tensor cores, so fp32 counts as that.
    """
    compute = unmeasured_precision(system.precision.compute)
    if compute == "fp32":
        return peaks.get("tf32", peaks["fp32"])
    return peaks.get(compute)
