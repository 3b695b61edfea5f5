"""Dropout for torch's compiler and for plain torch; on a CPU model/loops.py has a faster one.

A compiled mask is a hash of two random keys and the elements' numbers, so that the backward pass computes it again
instead of reading it. A hash takes 12 operations an element, torch's own generator (Philox) about 100.
"""

import torch
from torch import Tensor
from torch.nn import functional


def hashed_dropout(hidden: Tensor, rate: float, residual: Tensor) -> Tensor:
    """Compute `plain_dropout` with a mask that depends only on two keys drawn here, for torch's compiler."""
    if rate == 0:
        return plain_dropout(hidden, rate, residual)
    keys = torch.randint(-(1 << 31), 1 << 31, (2,), device=hidden.device).to(torch.int32)
    hashed = hashed_numbers(hidden.shape, keys)
    # of 2^32 values. A scale from whole numbers is a constant to the compiler, from the rate one more tensor to read
    drops = round(rate * 2**32)
    dropped = hidden * ((hashed >= drops - 2**31) * (2**32 / (2**32 - drops)))
    # the sum's shape is that of its first term: see _after_attention in model/compiled_layer.py
    return dropped + residual


def hashed_numbers(shape: torch.Size, keys: Tensor) -> Tensor:
    """Hash each element's number with two int32 keys, to int32; compare whole hashes, since low bits mix less.

    Multiplications by odd numbers alternate with shifts, as in MurmurHash3's finalizer; keys enter at both ends.
    """
    number = torch.arange(shape.numel(), dtype=torch.int32, device=keys.device).view(shape)
    hashed = (number ^ keys[0]) * -0x7A143595
    hashed = ((hashed ^ (hashed >> 16 & 0xFFFF)) + keys[1]) * -0x3D4D51CB
    return (hashed ^ (hashed >> 15 & 0x1FFFF)) * 0x2C1B3C6D


def plain_dropout(hidden: Tensor, rate: float, residual: Tensor) -> Tensor:
    """Return dropout of `hidden` by torch's operations, plus `residual`."""
    return residual + functional.dropout(hidden, rate)
