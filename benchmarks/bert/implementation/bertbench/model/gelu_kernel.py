"""Define the Triton kernel of model/gelu_gradient.py, which explains the shapes."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor, finfo, int32

from bertbench.model.fp8_kernels import magnitude_bits, saturated

COLUMNS = 256
STEP = 8  # rows at a time: with 256 columns, each thread has 16 elements


class Cast(NamedTuple):
    """Where the kernel also writes its result in fp8, the scale before that, and the amax that covers the result."""

    result_TF: Tensor
    scale: Tensor
    amax: Tensor


@triton.jit
def gelu_gradient_blocks(
    gradients, products, biases, results, sums, casts, scales, amax_bits, rows, width, largest,
    ROWS: tl.constexpr, STEP: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the product's gradient for a block of rows and columns, the columns' sums and, if asked, a cast."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    bias = tl.load(biases + column, is_column, 0.0)
    total = tl.zeros([STEP, COLUMNS], tl.float32)
    if casts is not None:
        scale = tl.load(scales)
        most = tl.zeros([STEP, COLUMNS], tl.int32)
    for offset in range(0, ROWS, STEP):
        row = tl.program_id(0) * ROWS + offset + tl.arange(0, STEP)
        inside = (row < rows)[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        value = tl.load(products + place, inside, 0.0).to(tl.float32) + bias[None, :]
        gradient = tl.load(gradients + place, inside, 0.0).to(tl.float32)
        # gelu(v) = v * sigmoid(k * (v + c * v^3)), with k = 2 * sqrt(2 / pi), where tanh is written as a sigmoid
        square = value * value
        share = tl.sigmoid(1.5957691216057308 * value * (1 + 0.044715 * square))
        slope = share + share * (1 - share) * 1.5957691216057308 * value * (1 + 0.134145 * square)
        result = gradient * slope
        tl.store(results + place, result, inside)
        total += result
        if casts is not None:
            stored = result.to(results.dtype.element_ty).to(tl.float32)
            tl.store(casts + place, saturated(stored * scale, largest).to(casts.dtype.element_ty), inside)
            most = tl.maximum(most, magnitude_bits(stored))
    tl.store(sums + tl.program_id(0) * width + column, tl.sum(total, 0), is_column)
    if casts is not None:
        tl.atomic_max(amax_bits, tl.max(tl.max(most, 1), 0))


def run_kernel(
    gradient_TF: Tensor,
    product_TF: Tensor,
    bias_F: Tensor,
    result_TF: Tensor,
    sums_BF: Tensor,
    rows: int,
    cast: Cast | None = None,
) -> None:
    """Fill `result_TF`, `sums_BF` and the cast's result."""
    count, width = product_TF.shape
    casts, scales, amax_bits, largest = None, None, None, None
    if cast is not None:
        casts, scales, amax_bits = cast.result_TF, cast.scale, cast.amax.view(int32)
        largest = finfo(cast.result_TF.dtype).max
    gelu_gradient_blocks[len(sums_BF), triton.cdiv(width, COLUMNS)](
        gradient_TF, product_TF, bias_F, result_TF, sums_BF, casts, scales, amax_bits, count, width, largest,
        ROWS=rows, STEP=STEP, COLUMNS=COLUMNS,
    )  # fmt: skip
