"""The Triton kernels of model/fp8_scaling.py and model/fp8_weight.py, and what GELU's shares. Shapes: as there."""

import triton
import triton.language as tl
from torch import Tensor, finfo, int32

BLOCK = 4096
"""Magnitudes of a program: 6 programs for the rows' amaxes of 24,576 tokens."""
SIDE = 64
"""Rows and columns of a weight's tile: 16 KB in fp32, and 64 bytes of each row in fp8."""


@triton.jit
def saturated(values, largest):
    """Return values between -largest and largest, so that a cast to fp8 makes no infinity; NaN stays NaN."""
    return tl.clamp(values, -largest, largest, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def magnitude_bits(values):
    """Return float32 magnitudes as int32, which order alike; NaN is the largest, so that a maximum keeps it."""
    return tl.abs(values).to(tl.int32, bitcast=True)


@triton.jit
def raise_amax_blocks(amax_bits, magnitudes, count, BLOCK: tl.constexpr):
    """Let the amax cover a block of magnitudes."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(magnitudes + place, place < count, 0.0).to(tl.float32)
    tl.atomic_max(amax_bits, tl.max(magnitude_bits(values), 0))


@triton.jit
def cast_weight_tiles(
    weights, casts, transposed_casts, scales, amax_bits, height, width, largest, SIDE: tl.constexpr
):  # fmt: skip
    """Write a tile of a weight in fp8, and the same transposed; let the amax cover it."""
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    inside = (row < height)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    values = tl.load(weights + place, inside, 0.0)
    cast = saturated(values * tl.load(scales), largest).to(casts.dtype.element_ty)
    tl.store(casts + place, cast, inside)
    inside_transposed = (column < width)[:, None] & (row < height)[None, :]
    tl.store(transposed_casts + column[:, None] * height + row[None, :], tl.trans(cast), inside_transposed)
    tl.atomic_max(amax_bits, tl.max(tl.max(magnitude_bits(values), 1), 0))


def run_raise_amax(amax: Tensor, magnitudes_N: Tensor) -> None:
    """Let `amax` cover the magnitudes."""
    count = magnitudes_N.numel()
    raise_amax_blocks[(triton.cdiv(count, BLOCK),)](amax.view(int32), magnitudes_N, count, BLOCK=BLOCK)


def run_cast_weight(weight_OI: Tensor, weight8_OI: Tensor, weight8_IO: Tensor, scale: Tensor, amax: Tensor) -> None:
    """Fill both matrices in fp8, and let `amax` cover the weight."""
    height, width = weight_OI.shape
    largest = finfo(weight8_OI.dtype).max
    cast_weight_tiles[triton.cdiv(height, SIDE), triton.cdiv(width, SIDE)](
        weight_OI, weight8_OI, weight8_IO, scale, amax.view(int32), height, width, largest, SIDE=SIDE
    )
