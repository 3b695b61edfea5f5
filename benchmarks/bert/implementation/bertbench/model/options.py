"""Options of a model's arithmetic, without importing torch, so that configuration can import them."""

from typing import Literal

PrecisionName = Literal["auto", "fp32", "bf16", "fp16", "fp8"]
"""The format of matrix products and activations.

`auto` becomes fp32 or bf16, as a run measures (machine/choose_arithmetic.py); commands that don't train count it as
fp32.
`fp8` is the format of most products of the encoder layers (model/fp8_linear.py); everything else is bf16 then.
"""

ProductsName = Literal["auto", "torch", "onednn"]
"""The library of a CPU's matrix products: the faster one for each product, as a run measures, or always one."""

ResidualName = Literal["auto", "fp32", "bf16"]
"""The format in which a layer hands its output to the next.

`auto` becomes bf16 where a GPU computes in bf16, if it passes its check (training/self_check.py), else fp32; commands
that don't train take it for fp32.
"""

CompileMode = Literal["auto", "none", "default", "graphs"]
"""Whether torch.compile fuses pieces of the model. `graphs` also replays a CUDA graph of the whole iteration at each of
a few sizes (training/graph_trainer.py). `auto` becomes the fastest that passes its check (training/self_check.py);
commands that don't train take the device's default for it."""


SIZE_STEP = 16
"""Batches of few sizes have sizes that are multiples of this."""

BIAS_COLUMNS = 8
"""Columns added to a product for its bias's gradient: one is read, but a GPU's 16-bit products want multiples of 8."""

FP8_WIDTH_STEP = 16
"""Both widths of a matrix that is multiplied in fp8 are multiples of this, as torch and NVIDIA's libraries want."""

LEAST_WIDTH = 256
"""Least hidden size for which code per batch size pays on a CPU (model/products.py)."""


def default_mode(device_type: str) -> CompileMode:
    """Return the default mode: none on a CPU, where matrix products leave too little to fuse."""
    return "default" if device_type == "cuda" else "none"


def unmeasured_precision(asked: PrecisionName) -> PrecisionName:
    """Return the format where nothing is measured: fp32 for `auto`, since measuring would take longer than it saves."""
    return "fp32" if asked == "auto" else asked


def without_fp8(precision: PrecisionName) -> PrecisionName:
    """Return the format of all that fp8 doesn't multiply: bf16 where `precision` is fp8."""
    return "bf16" if precision == "fp8" else precision


def unchecked_mode(asked: CompileMode | None, device_type: str) -> CompileMode:
    """Return the mode where no fast path is checked: the device's default for `auto`, or if none was asked for."""
    return default_mode(device_type) if asked in (None, "auto") else asked


def wants_few_sizes(device_type: str, precision: PrecisionName, mode: CompileMode, hidden_size: int) -> bool:
    """Return whether code is generated per batch size, so that batches should have few sizes (loading/filler.py).

    torch.compile, and oneDNN on a CPU (half precision, wide layers) generate such code.
    """
    by_onednn = device_type == "cpu" and (precision != "fp32" or hidden_size >= LEAST_WIDTH)
    return mode != "none" or by_onednn
