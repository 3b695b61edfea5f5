"""Multiply in fp8 by both weights of a feed-forward layer, with GELU between them in fp8 as well.

Both products belong to one function, because the second one's input and the first one's gradient are never written in
another format: the kernels that compute them cast them (model/fp8_gelu.py).
Shapes: N tokens, M the same rounded up to a multiple of 16, D hidden size, F feed-forward size.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model.fp8_casts import transposed
from bertbench.model.fp8_gelu import gelu_gradient_to_fp8, gelu_to_fp8
from bertbench.model.fp8_linear import (
    OF_SCALING,
    Fp8Linear,
    observe_and_cast_gradient,
    scaled_product,
    weight_gradient_from_fp8,
)
from bertbench.model.fp8_scaling import E4M3, LinearScaling, to_fp8


def feed_forward(first: Fp8Linear, second: Fp8Linear, hidden_ND: Tensor) -> Tensor:
    """Return the second layer's product, without its bias, with GELU (by tanh) of the first's output: [N, D]."""
    if not first.training:
        return second.product(functional.gelu(first(hidden_ND), approximate="tanh"))
    output_ND: Tensor = _FeedForward.apply(
        first.observed(hidden_ND),
        first.weight,
        *first.cast_weight(),
        first.bias,
        second.weight,
        *second.cast_weight(),
        *first.scaling.tensors(),
        *second.scaling.tensors(),
    )
    return output_ND


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        first_FD: Tensor,
        first8_FD: Tensor,
        first8_DF: Tensor,
        bias_F: Tensor,
        second_DF: Tensor,
        second8_DF: Tensor,
        second8_FD: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        first, second = _both(tensors)
        hidden8_ND = to_fp8(hidden_ND, first.input.scale, E4M3)
        hidden8_DM = transposed(hidden8_ND)  # before the product: see _Product in fp8_linear.py
        product_NF = scaled_product(hidden8_ND, first8_FD.T, first.input.inverse, first.weight.inverse)
        expanded8_NF, expanded8_FM = gelu_to_fp8(product_NF, bias_F, second.input.scale, second.input.amax)
        ctx.save_for_backward(hidden8_DM, product_NF, bias_F, expanded8_FM, first8_DF, second8_FD, *tensors)
        ctx.weight_type = first_FD.dtype
        return scaled_product(expanded8_NF, second8_DF.T, second.input.inverse, second.weight.inverse)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor | None, ...]:
        hidden8_DM, product_NF, bias_F, expanded8_FM, first8_DF, second8_FD, *tensors = ctx.saved_tensors
        first, second = _both(tensors)
        gradient8_ND, gradient8_DM = observe_and_cast_gradient(gradient_ND, second.gradient)
        to_expanded_NF = scaled_product(gradient8_ND, second8_FD.T, second.gradient.inverse, second.weight.inverse)
        to_product8_NF, to_product8_FM, sums_BF = gelu_gradient_to_fp8(
            to_expanded_NF, product_NF, bias_F, first.gradient.scale, first.gradient.amax
        )
        to_hidden_ND = scaled_product(to_product8_NF, first8_DF.T, first.gradient.inverse, first.weight.inverse)
        to_first_FD = weight_gradient_from_fp8(to_product8_FM, hidden8_DM, first.gradient, first.input, ctx.weight_type)
        to_second_DF = weight_gradient_from_fp8(
            gradient8_DM, expanded8_FM, second.gradient, second.input, ctx.weight_type
        )
        return (
            to_hidden_ND, to_first_FD, None, None, sums_BF.sum(0), to_second_DF, None, None, *OF_SCALING, *OF_SCALING
        )  # fmt: skip


def _both(tensors: Sequence[Tensor]) -> tuple[LinearScaling, LinearScaling]:
    half = len(tensors) // 2
    return LinearScaling.of(tensors[:half]), LinearScaling.of(tensors[half:])
