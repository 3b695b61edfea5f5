"""Compute GELU of a product and its bias, and both gradients in one pass, by operators that torch's compiler calls.

The compiler's own code for GELU takes exact tanh: more time for instructions than for bytes (model/gelu_kernel.py). For
the gradients it would read the input's gradient a second time to sum its columns: 202 MB a layer at 24,576 tokens of
BERT-Large. On a GPU each operator is one Triton kernel; elsewhere it calls torch's operations. Products in fp8 have
operators of their own (model/fp8_gelu.py).
Shapes: T tokens, F feed-forward size, B blocks of BLOCK_ROWS tokens, the last one perhaps shorter.
"""

import torch
from torch import Tensor
from torch.nn import functional

from bertbench.model.linear import blocks_of, sums_of_blocks


@torch.library.custom_op("bertbench::gelu", mutates_args=())
def gelu(product_TF: Tensor, bias_F: Tensor) -> Tensor:
    """Apply GELU in tanh's form to product + bias, in the product's format: [T, F] (arXiv 1606.08415)."""
    return functional.gelu(product_TF + bias_F, approximate="tanh").to(product_TF.dtype)


@gelu.register_fake
def _gelu_shape(product_TF: Tensor, bias_F: Tensor) -> Tensor:
    del bias_F
    return torch.empty_like(product_TF)


@gelu.register_kernel("cuda")
def _gelu_by_triton(product_TF: Tensor, bias_F: Tensor) -> Tensor:
    from bertbench.model.gelu_kernel import run_gelu  # noqa: PLC0415 - Triton, which is optional

    result_TF = _gelu_shape(product_TF, bias_F)
    run_gelu(product_TF.contiguous(), bias_F, result_TF)
    return result_TF


@torch.library.custom_op("bertbench::gelu_gradient", mutates_args=())
def gelu_gradient(gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the product [T, F], and its sums over blocks of rows [B, F] in at least float32.

    `gradient_TF` is the gradient of gelu(product + bias), in tanh's form (Hendrycks and Gimpel, arXiv 1606.08415).
    """
    wide_TF = product_TF + bias_F
    slope_TF = torch.ops.aten.gelu_backward(gradient_TF.to(wide_TF.dtype), wide_TF, approximate="tanh")
    return slope_TF.to(product_TF.dtype), sums_of_blocks(slope_TF)


@gelu_gradient.register_fake
def _described(gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = product_TF.shape
    dtype = torch.promote_types(product_TF.dtype, bias_F.dtype)
    return torch.empty_like(product_TF), product_TF.new_empty(blocks_of(rows), width, dtype=dtype)


@gelu_gradient.register_kernel("cuda")
def _by_triton(gradient_TF: Tensor, product_TF: Tensor, bias_F: Tensor) -> tuple[Tensor, Tensor]:
    from bertbench.model.gelu_kernel import run_gelu_gradient  # noqa: PLC0415 - Triton, which is optional

    result_TF, sums_BF = _described(gradient_TF, product_TF, bias_F)
    run_gelu_gradient(gradient_TF.contiguous(), product_TF.contiguous(), bias_F, result_TF, sums_BF)
    return result_TF, sums_BF
