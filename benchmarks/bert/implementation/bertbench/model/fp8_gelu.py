"""Compute GELU and its gradient straight into fp8, in operators that torch's compiler calls.

Between the feed-forward products no tensor exists in 16 bits but the first product and its output's gradient. At 24,576
tokens of BERT-Large that saves 201 MB a layer in the forward pass, and as much in the backward pass.
On a GPU each operator is one Triton kernel (model/fp8_kernels.py), elsewhere it calls torch's operations.
Shapes: as in model/fp8_casts.py; F feed-forward size.
"""

import torch
from torch import Tensor
from torch.nn import functional

from bertbench.model.fp8_casts import multiple_of_16, transposed
from bertbench.model.fp8_scaling import E4M3, E5M2, raise_amax, to_fp8
from bertbench.model.linear import blocks_of, sums_of_blocks


@torch.library.custom_op("bertbench::gelu_to_fp8", mutates_args=("amax",))
def gelu_to_fp8(product_NF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    """Return GELU (by tanh) of product + bias, times the scale, in e4m3: [N, F] and transposed [F, M].

    `amax` then covers GELU's output. Source of the formula: Hendrycks and Gimpel, arXiv 1606.08415.
    """
    expanded_NF = functional.gelu(product_NF.float() + bias_F, approximate="tanh")
    raise_amax(amax, expanded_NF.abs())
    expanded8_NF = to_fp8(expanded_NF, scale, E4M3)
    return expanded8_NF, transposed(expanded8_NF)


@gelu_to_fp8.register_fake
def _gelu_shapes(product_NF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    del bias_F, scale, amax
    return _in_both_layouts(product_NF, E4M3)


@gelu_to_fp8.register_kernel("cuda")
def _gelu_by_triton(product_NF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    from bertbench.model.fp8_kernels import Cast, run_gelu  # noqa: PLC0415 - Triton, which is optional

    expanded8_NF, expanded8_FM = _in_both_layouts(product_NF, E4M3)
    run_gelu(product_NF.contiguous(), bias_F, Cast(expanded8_NF, expanded8_FM, scale, amax))
    return expanded8_NF, expanded8_FM


@torch.library.custom_op("bertbench::gelu_gradient_to_fp8", mutates_args=("amax",))
def gelu_gradient_to_fp8(
    gradient_NF: Tensor, product_NF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of the product, times the scale, in e5m2: [N, F], transposed [F, M], and its sums [B, F].

    `gradient_NF` is the gradient of gelu(product + bias). The sums, over blocks of tokens, aren't scaled; they add up
    to the bias's gradient. `amax` then covers the product's gradient.
    """
    wide_NF = product_NF.float() + bias_F
    slope_NF = torch.ops.aten.gelu_backward(gradient_NF.float(), wide_NF, approximate="tanh")
    raise_amax(amax, slope_NF.abs())
    slope8_NF = to_fp8(slope_NF, scale, E5M2)
    return slope8_NF, transposed(slope8_NF), sums_of_blocks(slope_NF)


@gelu_gradient_to_fp8.register_fake
def _gelu_gradient_shapes(
    gradient_NF: Tensor, product_NF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del gradient_NF, bias_F, scale, amax
    rows, columns = product_NF.shape
    return *_in_both_layouts(product_NF, E5M2), product_NF.new_empty(blocks_of(rows), columns, dtype=torch.float32)


@gelu_gradient_to_fp8.register_kernel("cuda")
def _gelu_gradient_by_triton(
    gradient_NF: Tensor, product_NF: Tensor, bias_F: Tensor, scale: Tensor, amax: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    from bertbench.model.fp8_kernels import Cast, run_gelu_gradient  # noqa: PLC0415 - Triton, which is optional

    slope8_NF, slope8_FM, sums_BF = _gelu_gradient_shapes(gradient_NF, product_NF, bias_F, scale, amax)
    cast = Cast(slope8_NF, slope8_FM, scale, amax)
    run_gelu_gradient(gradient_NF.contiguous(), product_NF.contiguous(), bias_F, cast, sums_BF)
    return slope8_NF, slope8_FM, sums_BF


def _in_both_layouts(values_NF: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    rows, columns = values_NF.shape
    return values_NF.new_empty(rows, columns, dtype=dtype), values_NF.new_empty(
        columns, multiple_of_16(rows), dtype=dtype
    )
