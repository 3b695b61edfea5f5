"""Cast to fp8 plain and transposed, in operators that torch's compiler calls.

Hopper multiplies in fp8 only if both matrices lie in memory along the dimension that the product sums over. A layer's
three products sum over its inputs, its outputs and the tokens. Each tensor is in two of them, so it is needed plain and
transposed. A program of the kernels here reads a tile once and writes both; the compiler's own code writes rows alone.
On a GPU each operator is one Triton kernel (model/fp8_kernels.py), elsewhere it calls torch's operations.
Shapes: N tokens, M the same rounded up to a multiple of 16, C columns; O features out, I features in; B blocks of
BLOCK_ROWS tokens.
"""

import torch
from torch import Tensor

from bertbench.model.fp8_scaling import E4M3, E5M2, raise_amax, to_fp8
from bertbench.model.linear import blocks_of, sums_of_blocks
from bertbench.model.options import FP8_STEP


def multiple_of_16(tokens: int) -> int:
    """Return M for N tokens: products in fp8 sum over a multiple of 16. Transposed matrices have zeros in the rest."""
    return (tokens + FP8_STEP - 1) // FP8_STEP * FP8_STEP


# The tag keeps torch's compiler from copying an input that it has not yet decided how to lay out
@torch.library.custom_op("bertbench::transposed", mutates_args=(), tags=(torch.Tag.flexible_layout,))
def transposed(values_NC: Tensor) -> Tensor:
    """Return a matrix in fp8 transposed: [C, M]."""
    rows, columns = values_NC.shape
    values_CM = values_NC.new_zeros(columns, multiple_of_16(rows))
    values_CM[:, :rows] = values_NC.T
    return values_CM


@transposed.register_fake
def _transposed_shape(values_NC: Tensor) -> Tensor:
    rows, columns = values_NC.shape
    return values_NC.new_empty(columns, multiple_of_16(rows))


@transposed.register_kernel("cuda")
def _transposed_by_triton(values_NC: Tensor) -> Tensor:
    from bertbench.model.fp8_kernels import run_transpose  # noqa: PLC0415 - Triton, which is optional

    values_CM = _transposed_shape(values_NC)
    run_transpose(values_NC.contiguous(), values_CM)
    return values_CM


@torch.library.custom_op("bertbench::cast_weight", mutates_args=("amax",))
def cast_weight(weight_OI: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight * scale in e4m3, [O, I], and the same transposed, [I, O]; let `amax` cover the weight."""
    raise_amax(amax, weight_OI.abs())
    weight8_OI = to_fp8(weight_OI, scale, E4M3)
    return weight8_OI, weight8_OI.T.contiguous()


@cast_weight.register_fake
def _cast_weight_shapes(weight_OI: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    del scale, amax
    outputs, inputs = weight_OI.shape
    return weight_OI.new_empty(outputs, inputs, dtype=E4M3), weight_OI.new_empty(inputs, outputs, dtype=E4M3)


@cast_weight.register_kernel("cuda")
def _cast_weight_by_triton(weight_OI: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    from bertbench.model.fp8_kernels import Cast, run_cast  # noqa: PLC0415 - Triton, which is optional

    weight8_OI, weight8_IO = _cast_weight_shapes(weight_OI, scale, amax)
    run_cast(weight_OI.contiguous(), Cast(weight8_OI, weight8_IO, scale, amax))
    return weight8_OI, weight8_IO


@torch.library.custom_op("bertbench::cast_gradient", mutates_args=("amax",))
def cast_gradient(gradient_NO: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradient * scale in e5m2, [N, O] and transposed [O, M], and the gradient's sums over blocks, [B, O].

    `amax` then covers the gradient. The sums are in float32; they add up to a bias's gradient.
    """
    raise_amax(amax, gradient_NO.abs())
    gradient8_NO = to_fp8(gradient_NO, scale, E5M2)
    return gradient8_NO, transposed(gradient8_NO), sums_of_blocks(gradient_NO.float())


@cast_gradient.register_fake
def _cast_gradient_shapes(gradient_NO: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    del scale, amax
    tokens, outputs = gradient_NO.shape  # len() would bind the compiled code to this number of tokens
    gradient8_NO = gradient_NO.new_empty(tokens, outputs, dtype=E5M2)
    sums_BO = gradient_NO.new_empty(blocks_of(tokens), outputs, dtype=torch.float32)
    return gradient8_NO, _transposed_shape(gradient8_NO), sums_BO


@cast_gradient.register_kernel("cuda")
def _cast_gradient_by_triton(gradient_NO: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from bertbench.model.fp8_kernels import Cast, run_cast  # noqa: PLC0415 - Triton, which is optional

    gradient8_NO, gradient8_OM, sums_BO = _cast_gradient_shapes(gradient_NO, scale, amax)
    run_cast(gradient_NO.contiguous(), Cast(gradient8_NO, gradient8_OM, scale, amax), sums_BO)
    return gradient8_NO, gradient8_OM, sums_BO
