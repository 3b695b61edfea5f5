"""Apply dropout with masks drawn fast on CPU.

On CPU torch draws each element of a dropout mask separately, in 5.8 ns. Here one 64-bit draw gives four elements 16
random bits each to compare with a threshold: 0.9 ns. So a rate is a multiple of 1 / 65,536: 0.1 becomes 0.100006, and
kept elements are scaled by that.

Compiled layers hash two random keys and the elements' numbers to a mask, so that the backward pass computes the mask
again instead of reading it. A hash takes 12 operations an element, torch's own generator (Philox) about 100.
"""

from typing import Protocol

import torch
from torch.nn import functional

_VALUES = 1 << 16


class DropoutFunction(Protocol):
    """The type of the model's dropout function."""

    def __call__(self, hidden: torch.Tensor, rate: float, residual: torch.Tensor | None = None) -> torch.Tensor:
        """See `drop`."""


def random_bits(shape: torch.Size) -> torch.Tensor:
    """Return 16 random bits an element, as int16, from torch's own generator."""
    draws = torch.empty(-(-shape.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    return draws.view(torch.int16)[: shape.numel()].view(shape)


def keep_mask(bits: torch.Tensor, rate: float, dtype: torch.dtype) -> torch.Tensor:
    """Return 0 for a share `rate` of the elements, which are dropped, and 1 for the others; for `times_mask`.

    Comparing into int16, the type of the bits, takes 0.06 ns an element, into torch's bool 0.5 ns. For a 2-byte type
    the mask stays int16: multiplying the type's bits by 0 or 1 takes a fifth of the time of a bfloat16 product.
    """
    stays = torch.ge(bits, _drop_count(rate) - _VALUES // 2, out=torch.empty_like(bits))
    return stays if dtype.itemsize == stays.itemsize else stays.to(dtype)


def times_mask(values: torch.Tensor, mask: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """Return `into`, which may be `values` or the mask, with the values where the mask is 1, and 0 elsewhere."""
    torch.mul(values.view(mask.dtype), mask, out=into.view(mask.dtype))
    return into.view(values.dtype)


def keep_share(rate: float) -> float:
    """Return the exact share of kept elements, by which they are divided."""
    return 1 - _drop_count(rate) / _VALUES


def _drop_count(rate: float) -> int:
    return round(rate * _VALUES)


def apply_dropout(hidden: torch.Tensor, rate: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """Return dropout of `hidden`, plus `residual` if given; `rate` is 0 outside training."""
    if rate == 0 or not _draws_bits(hidden):
        return plain_dropout(hidden, rate, residual)
    stays, enlarged = keep_mask(random_bits(hidden.shape), rate, hidden.dtype).to(hidden.dtype), 1 / keep_share(rate)
    return hidden * stays.mul_(enlarged) if residual is None else torch.addcmul(residual, hidden, stays, value=enlarged)


def hashed_dropout(hidden: torch.Tensor, rate: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `apply_dropout` with a mask that depends only on two keys drawn here, for torch's compiler."""
    if rate == 0:
        return plain_dropout(hidden, rate, residual)
    keys = torch.randint(-(1 << 31), 1 << 31, (2,), device=hidden.device).to(torch.int32)
    hashed = hashed_numbers(hidden.shape, keys)
    # of 2^32 values. A scale from whole numbers is a constant to the compiler, from the rate one more tensor to read
    drops = round(rate * 2**32)
    dropped = hidden * ((hashed >= drops - 2**31) * (2**32 / (2**32 - drops)))
    return dropped if residual is None else residual + dropped


def hashed_numbers(shape: torch.Size, keys: torch.Tensor) -> torch.Tensor:
    """Hash each element's number with two int32 keys, to int32; compare whole hashes, since low bits mix less.

    Multiplications by odd numbers alternate with shifts, as in MurmurHash3's finalizer; keys enter at both ends.
    """
    number = torch.arange(shape.numel(), dtype=torch.int32, device=keys.device).view(shape)
    hashed = (number ^ keys[0]) * -0x7A143595
    hashed = ((hashed ^ (hashed >> 16 & 0xFFFF)) + keys[1]) * -0x3D4D51CB
    return (hashed ^ (hashed >> 15 & 0x1FFFF)) * 0x2C1B3C6D


def plain_dropout(hidden: torch.Tensor, rate: float, residual: torch.Tensor | None = None) -> torch.Tensor:
    """Compute `apply_dropout` by torch's operations."""
    dropped = functional.dropout(hidden, rate)
    return dropped if residual is None else residual + dropped


def _draws_bits(hidden: torch.Tensor) -> bool:
    """Return whether bits are faster: on CPU, unless torch's compiler fuses dropout with its neighbours."""
    return hidden.device.type == "cpu" and not torch.compiler.is_compiling()
