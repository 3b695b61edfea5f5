"""Set the number format of matrix products and activations; weights and optimizer state stay fp32."""

from contextlib import AbstractContextManager, nullcontext

import torch

from bertbench.model.options import PrecisionName


def autocast_type(precision: PrecisionName) -> torch.dtype | None:
    """Return the type of matrix products; None for fp32."""
    return {"auto": None, "fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def computing(precision: PrecisionName, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which the forward pass computes in `precision`."""
    dtype = autocast_type(precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def product_type(values: torch.Tensor) -> torch.dtype:
    """Return the type in which products of these values are computed: autocast's, or their own."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype


def in_format(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Return the tensor in `dtype`, or unchanged if that is None.

    What an autograd.Function returns is converted by this: torch 2.11's compiler drops an output's gradient behind a
    `.to` that changes nothing.
    """
    return tensor if dtype in (None, tensor.dtype) else tensor.to(dtype)
