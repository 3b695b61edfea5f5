"""Define the Triton kernel of model/gelu_gradient.py, which explains the shapes, and GELU for the kernels in fp8."""

import triton
import triton.language as tl
from torch import Tensor

from bertbench.model.linear import BLOCK_ROWS

COLUMNS = 256
STEP = 8  # rows at a time: with 256 columns, each thread has 16 elements


@triton.jit
def gelu(value):
    """Return value * sigmoid(k * (value + c * value^3)), with k = 2 * sqrt(2 / pi): tanh's form of GELU."""
    return value * tl.sigmoid(1.5957691216057308 * value * (1 + 0.044715 * value * value))


@triton.jit
def gelu_slope(value):
    """Return the derivative of `gelu`."""
    square = value * value
    share = tl.sigmoid(1.5957691216057308 * value * (1 + 0.044715 * square))
    return share + share * (1 - share) * 1.5957691216057308 * value * (1 + 0.134145 * square)


@triton.jit
def gelu_gradient_blocks(
    gradients, products, biases, results, sums, rows, width,
    ROWS: tl.constexpr, STEP: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the product's gradient for a block of rows and columns, and the columns' sums."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    bias = tl.load(biases + column, is_column, 0.0)
    total = tl.zeros([STEP, COLUMNS], tl.float32)
    for offset in range(0, ROWS, STEP):
        row = tl.program_id(0) * ROWS + offset + tl.arange(0, STEP)
        inside = (row < rows)[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        value = tl.load(products + place, inside, 0.0).to(tl.float32) + bias[None, :]
        gradient = tl.load(gradients + place, inside, 0.0).to(tl.float32)
        result = gradient * gelu_slope(value)
        tl.store(results + place, result, inside)
        total += result
    tl.store(sums + tl.program_id(0) * width + column, tl.sum(total, 0), is_column)


def run_kernel(gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor, result_TF: Tensor, sums_BF: Tensor) -> None:
    """Fill `result_TF` and `sums_BF`."""
    count, width = product_TF.shape
    gelu_gradient_blocks[len(sums_BF), triton.cdiv(width, COLUMNS)](
        gradient_TF, product_TF, bias_F, result_TF, sums_BF, count, width, ROWS=BLOCK_ROWS, STEP=STEP, COLUMNS=COLUMNS
    )
