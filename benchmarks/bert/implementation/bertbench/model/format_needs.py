"""Say whether a GPU multiplies in a number format, before the clock starts and where a layer begins to use it."""

from typing import NamedTuple

from bertbench.model.fp8_scaling import FP8_CAPABILITY

BF16_CAPABILITY = (8, 0)
"""Lowest compute capability with products in bf16: an A100's (CUDA C++ Programming Guide, arithmetic instructions)."""


class FormatNeed(NamedTuple):
    """What a number format requires of a GPU."""

    capability: tuple[int, int]
    """The lowest compute capability that multiplies in this format."""
    remedy: str
    """What to do on an older GPU."""


_NEEDS = {
    "bf16": FormatNeed(
        BF16_CAPABILITY,
        "write this machine's file with `bertbench config init`, or add --set precision.compute=fp16 --set "
        "optimizer.impl=torch --set compute.compile=none",
    ),
    "fp8": FormatNeed(FP8_CAPABILITY, "add --set precision.compute=bf16"),
}


def format_problem(compute: str, gpu_model: str, capability: tuple[int, int]) -> str | None:
    """Return why a GPU can't run with this `precision.compute`, with the remedy; None if it can."""
    need = _NEEDS.get(compute)
    if need is None or capability >= need.capability:
        return None
    version = "{}.{}".format(*capability)
    return (
        f"precision.compute is {compute}, but {gpu_model} (compute capability {version}) has no {compute}; "
        f"{need.remedy}"
    )
