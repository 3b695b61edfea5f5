"""Compute the gradients of GELU's input and of its bias in one pass, by an operator that torch's compiler calls.

The compiler's own code would read the input's gradient a second time to sum its columns: 202 MB a layer at 24,576
tokens of BERT-Large. For fp8's products, the operator also casts that gradient, which would otherwise be read again,
too: 201 MB. On a GPU the operator is one Triton kernel (model/gelu_kernel.py); elsewhere it calls torch's operations.
Shapes: T tokens, F feed-forward size, B blocks of ROWS tokens, the last one perhaps shorter.
"""

import torch
from torch import Tensor

from bertbench.model.fp8_scaling import E5M2, raise_amax, to_fp8

ROWS = 128  # of a program: 3,072 programs at 24,576 tokens of BERT-Large; block sums take 1.6 % of their input's bytes


@torch.library.custom_op("bertbench::gelu_gradient", mutates_args=())
def gelu_gradient(gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the product [T, F], and its sums over blocks of rows [B, F] in at least float32.

    `gradient_TF` is the gradient of gelu(product + bias), in tanh's form (Hendrycks and Gimpel, arXiv 1606.08415).
    """
    wide_TF = product_TF + bias_F
    slope_TF = torch.ops.aten.gelu_backward(gradient_TF.to(wide_TF.dtype), wide_TF, approximate="tanh")
    return slope_TF.to(product_TF.dtype), torch.stack([rows.sum(0) for rows in slope_TF.split(ROWS)])


@gelu_gradient.register_fake
def _described(gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = product_TF.shape
    dtype = torch.promote_types(product_TF.dtype, bias_F.dtype)
    return torch.empty_like(product_TF), product_TF.new_empty((rows + ROWS - 1) // ROWS, width, dtype=dtype)


@gelu_gradient.register_kernel("cuda")
def _by_triton(gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor) -> tuple[Tensor, Tensor]:
    from bertbench.model.gelu_kernel import run_kernel  # noqa: PLC0415 - Triton, which is optional

    result_TF, sums_BF = _described(gradient_TF, product_TF, bias_F)
    run_kernel(gradient_TF.contiguous(), product_TF.contiguous(), bias_F, result_TF, sums_BF, ROWS)
    return result_TF, sums_BF


@torch.library.custom_op("bertbench::gelu_gradient_to_fp8", mutates_args=("amax",))
def gelu_gradient_to_fp8(
    gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `gelu_gradient` does, and the product's gradient * scale in e5m2; let `amax` cover that gradient."""
    result_TF, sums_BF = gelu_gradient(gradient_TF, product_TF, bias_F)
    raise_amax(amax, result_TF.abs())
    return result_TF, sums_BF, to_fp8(result_TF, scale, E5M2)


@gelu_gradient_to_fp8.register_fake
def _described_in_fp8(
    gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del scale, amax
    result_TF, sums_BF = _described(gradient_TF, product_TF, bias_F)
    return result_TF, sums_BF, torch.empty_like(result_TF, dtype=E5M2)


@gelu_gradient_to_fp8.register_kernel("cuda")
def _to_fp8_by_triton(
    gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    from bertbench.model.gelu_kernel import Cast, run_kernel  # noqa: PLC0415 - Triton, which is optional

    result_TF, sums_BF, result8_TF = _described_in_fp8(gradient_TF, product_TF, bias_F, scale, amax)
    cast = Cast(result8_TF, scale, amax)
    run_kernel(gradient_TF.contiguous(), product_TF.contiguous(), bias_F, result_TF, sums_BF, ROWS, cast)
    return result_TF, sums_BF, result8_TF
