"""Handle numbers that may be on a device, so that a step never waits for their values."""

import torch
from torch import Tensor

Scalar = float | Tensor
"""A number, or a tensor without dimensions whose value the host doesn't know."""


def scalar_tensor(scalar: Scalar, device: torch.device) -> Tensor:
    """Return a number as a float32 tensor without dimensions; torch.tensor would wait for a GPU."""
    if isinstance(scalar, Tensor):
        return scalar.float()
    return torch.full((), scalar, dtype=torch.float32, device=device)  # without dtype, an int makes integers
