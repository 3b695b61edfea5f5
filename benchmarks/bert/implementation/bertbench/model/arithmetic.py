"""Set how a model computes: the format of matrix products and activations, and torch.compile; report the choice.

Weights and optimizer state stay fp32. This is the one place that turns on torch.compile.
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from bertbench.common.errors import ConfigError
from bertbench.model import loops
from bertbench.model.attention import flash_attention, kernel_for
from bertbench.model.bert import Bert
from bertbench.model.options import CompileMode, PrecisionName, unchecked_mode, unmeasured_precision, without_fp8
from bertbench.model.shape import BertShape


def set_arithmetic(
    model: Bert, device: torch.device, precision: PrecisionName, compile_mode: CompileMode | None
) -> str:
    """Prepare a model, already on its device, to compute in `precision`; return a line that describes the result.

    If `compile_mode` is None or `auto`, use the device's default. Raises ConfigError if a mode that was given by name
    can't work.
    """
    mode, pieces = choose_mode(device, compile_mode)
    if mode != "none":
        from bertbench.model.compiled import compile_pieces  # noqa: PLC0415 - few runs compile: loaded when used

        compile_pieces(model)
        model.hand_to_heads(autocast_type(precision))
    return describe_compute(device, precision, model.shape, pieces)


def choose_mode(device: torch.device, asked: CompileMode | None) -> tuple[CompileMode, str]:
    """Return the mode of torch.compile and a description of it; see `set_arithmetic`."""
    by_name = asked not in (None, "auto")
    mode = unchecked_mode(asked, device.type)
    if mode == "none":
        return mode, loops.described() if device.type == "cpu" else "not compiled"
    from bertbench.model.compiled import compiler_obstacle  # noqa: PLC0415

    reason = compiler_obstacle(device)
    if reason and by_name:
        raise ConfigError(f"compute.compile {asked}: torch.compile can't work here ({reason}); set it to none")
    if reason:
        return "none", f"not compiled, so slower ({reason})"
    replayed = ", whole steps replayed as CUDA graphs" if mode == "graphs" and device.type == "cuda" else ""
    return mode, f"operations between matmuls fused by torch.compile{replayed}"


def attends_by_flash(device: torch.device, precision: PrecisionName, shape: BertShape) -> bool:
    """Return whether a model of this shape computes attention by torch's flash kernel."""
    width = shape.hidden_size // shape.attention_heads
    return kernel_for(device, autocast_type(precision) or torch.float32, width) is flash_attention


def describe_compute(device: torch.device, precision: PrecisionName, shape: BertShape, pieces: str) -> str:
    """Describe in a line how a model of this shape computes; `pieces` describes the rest."""
    flash = ", attention by torch's flash kernel" if attends_by_flash(device, precision, shape) else ""
    return f"{_words_of(precision, device)}{flash}, {pieces}"


def _words_of(precision: PrecisionName, device: torch.device) -> str:
    if precision != "fp8":
        return precision
    where = "fp8 in the layers' products, bf16 elsewhere"
    return f"{where} (no CPU multiplies fp8: slower than bf16)" if device.type == "cpu" else where


def autocast_type(precision: PrecisionName) -> torch.dtype | None:
    """Return the type of matrix products (bf16's for fp8); None for fp32, and for `auto` if nothing was measured."""
    formats = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
    return formats[without_fp8(unmeasured_precision(precision))]


def computing(precision: PrecisionName, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which the forward pass computes in `precision`."""
    dtype = autocast_type(precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)
