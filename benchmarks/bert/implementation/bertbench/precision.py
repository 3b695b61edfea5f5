"""The number format of matrix products and activations; weights and optimizer state stay fp32."""

from contextlib import AbstractContextManager, nullcontext

import torch


def computing(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """A context in which the forward pass computes in `precision`: fp32, bf16 or fp16."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, {"bf16": torch.bfloat16, "fp16": torch.float16}[precision])
