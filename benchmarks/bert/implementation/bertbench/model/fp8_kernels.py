"""The Triton kernels of model/fp8_scaling.py, model/fp8_casts.py and model/fp8_gelu.py. Shapes: as there."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor, cuda, finfo, int32, uint8

from bertbench.model.gelu_kernel import gelu, gelu_slope
from bertbench.model.linear import BLOCK_ROWS

BLOCK = 4096
"""Magnitudes of a program: 6 programs for the rows' amaxes of 24,576 tokens."""
TILE_COLUMNS = 64
"""With BLOCK_ROWS = 128, a tile's rows in bf16 and its columns in fp8 are whole lines of memory, of 128 bytes."""
TRANSPOSED_SIDE = 128
"""Rows and columns of a tile that is in fp8 before and after."""
WARPS = 8
"""Of a program: each thread has 32 elements of a tile, 64 where the tile is in fp8."""


class Cast(NamedTuple):
    """Where a kernel writes a matrix in fp8, and how."""

    plain_NC: Tensor
    transposed_CM: Tensor
    scale: Tensor
    amax: Tensor
    """It is to cover the matrix before scaling."""


@triton.jit
def raise_amax_blocks(amax_bits, magnitudes, count, BLOCK: tl.constexpr):
    """Let the amax cover a block of magnitudes."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(magnitudes + place, place < count, 0.0).to(tl.float32)
    tl.atomic_max(amax_bits, tl.max(_magnitude_bits(values), 0), sem="relaxed")


@triton.jit
def transpose_tiles(values, results, rows, columns, padded, SIDE: tl.constexpr):
    """Write a tile of bytes transposed, and zeros beyond the rows."""
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    tile = tl.load(values + _places(row, column, columns), _inside(row, rows, column, columns), 0)
    tl.store(results + _places(column, row, padded), tl.trans(tile), _inside(column, columns, row, padded))


@triton.jit
def cast_tiles(
    values, casts, transposed_casts, sums, scales, amax_bits, rows, columns, padded, largest,
    CLAMPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write a tile in both layouts and, if asked, the sums of its columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = _inside(row, rows, column, columns)
    tile = tl.load(values + _places(row, column, columns), inside, 0.0).to(tl.float32)
    if sums is not None:
        _store_sums(sums, tile, column, columns)
    _store_casts(casts, transposed_casts, scales, amax_bits, tile, row, column, rows, columns, padded, largest, CLAMPS)


@triton.jit
def gelu_tiles(
    products, biases, casts, transposed_casts, scales, amax_bits, rows, columns, padded, largest,
    CLAMPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write a tile of GELU's output in both layouts."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = _inside(row, rows, column, columns)
    bias = tl.load(biases + column, column < columns, 0.0)
    value = tl.load(products + _places(row, column, columns), inside, 0.0).to(tl.float32) + bias[None, :]
    tile = tl.where(inside, gelu(value), 0.0)
    _store_casts(casts, transposed_casts, scales, amax_bits, tile, row, column, rows, columns, padded, largest, CLAMPS)


@triton.jit
def gelu_gradient_tiles(
    gradients, products, biases, casts, transposed_casts, sums, scales, amax_bits, rows, columns, padded, largest,
    CLAMPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write a tile of the product's gradient in both layouts, and the sums of its columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = _inside(row, rows, column, columns)
    place = _places(row, column, columns)
    bias = tl.load(biases + column, column < columns, 0.0)
    value = tl.load(products + place, inside, 0.0).to(tl.float32) + bias[None, :]
    # 0 outside the matrix, as the gradient is there
    tile = tl.load(gradients + place, inside, 0.0).to(tl.float32) * gelu_slope(value)
    _store_sums(sums, tile, column, columns)
    _store_casts(casts, transposed_casts, scales, amax_bits, tile, row, column, rows, columns, padded, largest, CLAMPS)


@triton.jit
def _store_sums(sums, tile, column, columns):
    """Write the sums of a tile's columns to the row of its block."""
    tl.store(sums + tl.program_id(0) * columns + column, tl.sum(tile, 0), column < columns)


@triton.jit
def _store_casts(
    casts, transposed_casts, scales, amax_bits, tile, row, column, rows, columns, padded, largest, CLAMPS: tl.constexpr
):  # fmt: skip
    """Write a float32 tile times the scale in both layouts; let the amax cover it. It is 0 outside the matrix."""
    scaled = tile * tl.load(scales)
    if CLAMPS:
        scaled = _saturated(scaled, largest)
    cast = scaled.to(casts.dtype.element_ty)
    tl.store(casts + _places(row, column, columns), cast, _inside(row, rows, column, columns))
    inside_transposed = _inside(column, columns, row, padded)
    tl.store(transposed_casts + _places(column, row, padded), tl.trans(cast), inside_transposed)
    # The default order, acq_rel, would throw away the multiprocessor's L1 cache in each program
    tl.atomic_max(amax_bits, tl.max(tl.max(_magnitude_bits(tile), 1), 0), sem="relaxed")


@triton.jit
def _places(row, column, columns):
    """Return the places of elements in a matrix of this width, in 64 bits: it can have more than 2^31 elements."""
    return row.to(tl.int64)[:, None] * columns + column[None, :]


@triton.jit
def _inside(row, rows, column, columns):
    return (row < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def _saturated(values, largest):
    """Return values between -largest and largest, so that a cast to fp8 makes no infinity; NaN stays NaN."""
    return tl.clamp(values, -largest, largest, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _magnitude_bits(values):
    """Return float32 magnitudes as int32, which order alike; NaN is the largest, so that a maximum keeps it."""
    return tl.abs(values).to(tl.int32, bitcast=True)


def run_raise_amax(amax: Tensor, magnitudes_N: Tensor) -> None:
    """Let `amax` cover the magnitudes."""
    count = magnitudes_N.numel()
    raise_amax_blocks[(triton.cdiv(count, BLOCK),)](amax.view(int32), magnitudes_N, count, BLOCK=BLOCK)


def run_transpose(values_NC: Tensor, values_CM: Tensor) -> None:
    """Fill the transposed matrix."""
    rows, columns = values_NC.shape
    padded = values_CM.shape[1]
    transpose_tiles[triton.cdiv(padded, TRANSPOSED_SIDE), triton.cdiv(columns, TRANSPOSED_SIDE)](
        values_NC.view(uint8), values_CM.view(uint8), rows, columns, padded, SIDE=TRANSPOSED_SIDE, num_warps=WARPS
    )


def run_cast(values_NC: Tensor, cast: Cast, sums_BC: Tensor | None = None) -> None:
    """Fill both matrices in fp8 and, if given, the sums; raise the amax."""
    cast_tiles[_grid(cast)](
        values_NC, cast.plain_NC, cast.transposed_CM, sums_BC, cast.scale, cast.amax.view(int32), *_sizes(cast),
        CLAMPS=_clamps(cast), ROWS=BLOCK_ROWS, COLUMNS=TILE_COLUMNS, num_warps=WARPS,
    )  # fmt: skip


def run_gelu(product_NF: Tensor, bias_F: Tensor, cast: Cast) -> None:
    """Fill both matrices in fp8 with GELU's output; raise the amax."""
    gelu_tiles[_grid(cast)](
        product_NF, bias_F, cast.plain_NC, cast.transposed_CM, cast.scale, cast.amax.view(int32), *_sizes(cast),
        CLAMPS=_clamps(cast), ROWS=BLOCK_ROWS, COLUMNS=TILE_COLUMNS, num_warps=WARPS,
    )  # fmt: skip


def run_gelu_gradient(gradient_NF: Tensor, product_NF: Tensor, bias_F: Tensor, cast: Cast, sums_BF: Tensor) -> None:
    """Fill both matrices in fp8 with the product's gradient, and its sums; raise the amax."""
    gelu_gradient_tiles[_grid(cast)](
        gradient_NF, product_NF, bias_F, cast.plain_NC, cast.transposed_CM, sums_BF, cast.scale, cast.amax.view(int32),
        *_sizes(cast), CLAMPS=_clamps(cast), ROWS=BLOCK_ROWS, COLUMNS=TILE_COLUMNS, num_warps=WARPS,
    )  # fmt: skip


def _grid(cast: Cast) -> tuple[int, int]:
    columns, padded = cast.transposed_CM.shape
    return triton.cdiv(padded, BLOCK_ROWS), triton.cdiv(columns, TILE_COLUMNS)


def _clamps(cast: Cast) -> bool:
    """Return whether a cast needs a clamp, because its conversion to fp8 doesn't saturate by itself.

    From compute capability 9.0 on, Triton converts fp32 by one instruction that does (PTX ISA, cvt.satfinite).
    """
    device = cast.plain_NC.device
    return device.type != "cuda" or cuda.get_device_capability(device) < (9, 0)


def _sizes(cast: Cast) -> tuple[int, int, int, float]:
    """Return rows, columns, padded rows and the largest number of the format."""
    rows, columns = cast.plain_NC.shape
    return rows, columns, cast.transposed_CM.shape[1], finfo(cast.plain_NC.dtype).max
