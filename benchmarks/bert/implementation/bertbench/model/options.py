"""Define the options of a model's arithmetic. Nothing here imports torch, so that the configuration can import it.

Who settles `auto`: a run does, once, before its first step. `choose_arithmetic` (machine/choose_arithmetic.py) measures
the format and the libraries of products, and takes the fastest compile mode, optimizer kernels and residual that the
system allows. Then training/self_check.py replaces what computes wrongly on this device. Commands that don't train
measure nothing: they use `unmeasured_precision` and `unchecked_mode` below.
"""

from typing import Literal

PrecisionName = Literal["auto", "fp32", "bf16", "fp16", "fp8"]
"""The format of matrix products and activations.

`auto`: a run measures fp32 and bf16 and takes the faster (machine/choose_arithmetic.py); commands that don't train take
fp32. `fp8`: most products of the encoder layers are in fp8 (model/fp8_linear.py), everything else is in bf16.
"""

ProductsName = Literal["auto", "torch", "onednn"]
"""The library of a CPU's matrix products: the measured fastest for each product, or always the same one."""

ResidualName = Literal["auto", "fp32", "bf16"]
"""The format in which a layer hands its output to the next.

`auto`: bf16 if a GPU computes in bf16 and the format passes its check (training/self_check.py), otherwise fp32.
Commands that don't train take fp32.
"""

CompileMode = Literal["auto", "none", "default", "graphs"]
"""Whether torch.compile fuses pieces of the model.

`graphs` also replays a CUDA graph of the whole iteration for each of a few batch sizes (training/graph_trainer.py).
`auto` takes the fastest mode that passes its check (training/self_check.py); commands that don't train take the
device's default.
"""


SIZE_STEP = 16
"""Where batches should have few sizes, their sizes are multiples of this."""

BIAS_COLUMNS = 8
"""Columns added to a product for its bias's gradient. One would do, but 16-bit products on GPUs want multiples of 8."""

FP8_STEP = 16
"""Rows and columns of a matrix in an fp8 product are multiples of this, as torch and NVIDIA's libraries require."""

LEAST_WIDTH = 256
"""Smallest hidden size for which generating code per batch size pays off on a CPU (model/products.py)."""


def default_mode(device_type: str) -> CompileMode:
    """Return the default mode: none on a CPU, where little time is spent between matrix products."""
    return "default" if device_type == "cuda" else "none"


def unmeasured_precision(asked: PrecisionName) -> PrecisionName:
    """Return the format to use without a measurement: fp32 for `auto`, if measuring would take longer than it saves."""
    return "fp32" if asked == "auto" else asked


def without_fp8(precision: PrecisionName) -> PrecisionName:
    """Return the format of everything but fp8's products: bf16 if `precision` is fp8, otherwise `precision`."""
    return "bf16" if precision == "fp8" else precision


def unchecked_mode(asked: CompileMode | None, device_type: str) -> CompileMode:
    """Return the mode to use where fast paths aren't checked: the device's default for `auto` and for None."""
    return default_mode(device_type) if asked in (None, "auto") else asked


def wants_few_sizes(device_type: str, precision: PrecisionName, mode: CompileMode, hidden_size: int) -> bool:
    """Return whether code is generated per batch size, so that batches should have few sizes (loading/filler.py).

    torch.compile generates such code, and so does oneDNN on a CPU (in half precision, for wide layers).
    """
    by_onednn = device_type == "cpu" and (precision != "fp32" or hidden_size >= LEAST_WIDTH)
    return mode != "none" or by_onednn
