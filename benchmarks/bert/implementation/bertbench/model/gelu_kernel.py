"""Define the Triton kernels of model/gelu.py, which explains the shapes, and GELU for the kernels in fp8.

An element's bytes take an H100 longer than the instructions here. With exact tanh, or the exponential and division of a
sigmoid, it is the other way round: GELU took 36 to 48 instructions an element, its gradient in fp8 48.
`bertbench lab kernels` counts them.
"""

import triton
import triton.language as tl
from torch import Tensor

from bertbench.model.linear import BLOCK_ROWS

COLUMNS = 256
STEP = 8  # rows at a time: with 256 columns, each thread has 16 elements


@triton.jit
def _hardware_tanh(value):
    """Return tanh by one instruction, which errs by at most 2^-10.987 of it (PTX ISA, tanh)."""
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _computed_tanh(value):
    return 2 * tl.sigmoid(2 * value) - 1


# Triton's interpreter can't run instructions of a GPU
_tanh = _computed_tanh if triton.knobs.runtime.interpret else _hardware_tanh


@triton.jit
def gelu(value):
    """Return value / 2 * (1 + tanh(k * (value + c * value^3))), with k = sqrt(2 / pi): tanh's form of GELU."""
    half = 0.5 * value
    return half + half * _tanh(0.7978845608028654 * value * (1 + 0.044715 * value * value))


@triton.jit
def gelu_slope(value):
    """Return the derivative of `gelu`."""
    square = value * value
    tanh = _tanh(0.7978845608028654 * value * (1 + 0.044715 * square))
    half = 0.5 * value
    return 0.5 + 0.5 * tanh + half * (1 - tanh * tanh) * (0.7978845608028654 * (1 + 0.134145 * square))


@triton.jit
def gelu_blocks(
    products, biases, results, rows, width, ROWS: tl.constexpr, STEP: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Write GELU of product + bias for a block of rows and columns."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    bias = tl.load(biases + column, is_column, 0.0)
    for offset in range(0, ROWS, STEP):
        row = tl.program_id(0) * ROWS + offset + tl.arange(0, STEP)
        inside = (row < rows)[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        value = tl.load(products + place, inside, 0.0).to(tl.float32) + bias[None, :]
        tl.store(results + place, gelu(value), inside)


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


def run_gelu(product_TF: Tensor, bias_F: Tensor, result_TF: Tensor) -> None:
    """Fill `result_TF`."""
    count, width = product_TF.shape
    gelu_blocks[triton.cdiv(count, BLOCK_ROWS), triton.cdiv(width, COLUMNS)](
        product_TF, bias_F, result_TF, count, width, ROWS=BLOCK_ROWS, STEP=STEP, COLUMNS=COLUMNS
    )


def run_gelu_gradient(
    gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor, result_TF: Tensor, sums_BF: Tensor
) -> None:
    """Fill `result_TF` and `sums_BF`."""
    count, width = product_TF.shape
    gelu_gradient_blocks[len(sums_BF), triton.cdiv(width, COLUMNS)](
        gradient_TF, product_TF, bias_F, result_TF, sums_BF, count, width, ROWS=BLOCK_ROWS, STEP=STEP, COLUMNS=COLUMNS
    )
