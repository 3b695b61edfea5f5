"""Apply dropout with masks drawn fast on CPU.

On CPU torch draws each element of a dropout mask separately, in 5.8 ns. Here one 64-bit draw decides for eight
elements: 0.25 ns. Each of its four 16-bit numbers decides for two: the ranges of numbers that drop the one and the
other overlap by as much as independence needs. So a rate is a multiple of 1 / 65,536: 0.1 becomes 0.100006, and kept
elements are scaled by that. numpy draws in half of torch's time; torch's own generator seeds it for each mask.

Compiled layers hash two random keys and the elements' numbers to a mask, so that the backward pass computes the mask
again instead of reading it. A hash takes 12 operations an element, torch's own generator (Philox) about 100.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_VALUES = 1 << 16


DropoutFunction = Callable[..., Tensor]
"""Takes hidden states, a rate and, if the layer has one, the residual; see `apply_dropout`."""


def keep_mask(shape: torch.Size, rate: float, dtype: torch.dtype) -> Tensor:
    """Draw 0 for a share `rate` of the elements, which are dropped, and 1 for the others; for `times_mask`.

    Comparing into int16, the type of the bits, takes 0.06 ns an element, into torch's bool 0.5 ns. For a 2-byte type
    the mask stays int16: multiplying the type's bits by 0 or 1 takes a fifth of the time of a bfloat16 product.
    """
    drops = _drop_count(rate)
    by_both = round(drops**2 / _VALUES)
    bits = _random_bits(-(-shape.numel() // 2))
    stays = bits.new_empty(2 * len(bits))
    first, second = stays.chunk(2)
    torch.ge(bits, drops - _VALUES // 2, out=first)
    torch.ge(bits.sub_(drops - by_both), drops - _VALUES // 2, out=second)  # int16 wraps around
    stays = stays[: shape.numel()].view(shape)
    return stays if dtype.itemsize == stays.itemsize else stays.to(dtype)


def times_mask(values: Tensor, mask: Tensor, into: Tensor) -> Tensor:
    """Return `into`, which may be `values` or the mask, with the values where the mask is 1, and 0 elsewhere."""
    torch.mul(values.view(mask.dtype), mask, out=into.view(mask.dtype))
    return into.view(values.dtype)


def keep_share(rate: float) -> float:
    """Return the exact share of kept elements, by which they are divided."""
    return 1 - _drop_count(rate) / _VALUES


def _random_bits(numbers: int) -> Tensor:
    """Return numbers of 16 random bits, as int16."""
    seed = torch.empty((), dtype=torch.int64).random_()
    if type(seed) is not Tensor:  # a dry run's tensors hold no numbers
        return torch.empty(numbers, dtype=torch.int16)
    return torch.from_numpy(np.random.SFC64(int(seed)).random_raw(-(-numbers // 4)).view(np.int16)[:numbers])


def _drop_count(rate: float) -> int:
    return round(rate * _VALUES)


def apply_dropout(hidden: Tensor, rate: float, residual: Tensor | None = None) -> Tensor:
    """Return dropout of `hidden`, plus `residual` if given; `rate` is 0 outside training."""
    # bits are faster on a CPU, unless torch's compiler fuses dropout with its neighbours
    if rate == 0 or hidden.device.type != "cpu" or torch.compiler.is_compiling():
        return plain_dropout(hidden, rate, residual)
    if hidden.itemsize == 2:
        halved: Tensor = _HalfDropout.apply(hidden, rate, residual)
        return halved
    stays, enlarged = keep_mask(hidden.shape, rate, hidden.dtype), 1 / keep_share(rate)
    return hidden * stays.mul_(enlarged) if residual is None else torch.addcmul(residual, hidden, stays, value=enlarged)


class _HalfDropout(torch.autograd.Function):
    """Dropout of a 2-byte type plus a residual of any type, by the whole-number mask of `keep_mask`."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rate: float, residual: Tensor | None) -> Tensor:
        mask, ctx.enlarged = keep_mask(hidden.shape, rate, hidden.dtype), 1 / keep_share(rate)
        ctx.save_for_backward(mask)
        ctx.dtype, ctx.adds = hidden.dtype, residual is not None
        dropped = times_mask(hidden, mask, torch.empty_like(hidden))
        return dropped.mul_(ctx.enlarged) if residual is None else torch.add(residual, dropped, alpha=ctx.enlarged)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None]:
        (mask,) = ctx.saved_tensors
        by_hidden = (gradient * ctx.enlarged).to(ctx.dtype)
        return times_mask(by_hidden, mask, by_hidden), None, gradient if ctx.adds else None


def hashed_dropout(hidden: Tensor, rate: float, residual: Tensor) -> Tensor:
    """Compute `apply_dropout` with a mask that depends only on two keys drawn here, for torch's compiler."""
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


def plain_dropout(hidden: Tensor, rate: float, residual: Tensor | None = None) -> Tensor:
    """Compute `apply_dropout` by torch's operations."""
    dropped = functional.dropout(hidden, rate)
    return dropped if residual is None else residual + dropped
