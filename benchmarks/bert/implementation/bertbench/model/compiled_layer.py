"""An encoder layer for torch's compiler: the same mathematics as model/encoder.py, with fewer bytes moved on a GPU.

MB that a layer saves at 24,576 tokens of BERT-Large, forward and backward, with fp32 hidden states between layers:
- 101: hidden states go to the next layer normalised, before LayerNorm's weight and bias. LayerNorm's backward pass
  keeps those values anyway; the next layer applies weight and bias where it reads them.
- 101: dropout masks are hashes (hashed_dropout), which the backward pass computes again.
- 38: products write weights' gradients in float32; no kernel converts them.
- 151: the gradient of query's, key's and value's bias is a column of their weights' product (as in head_loss.py).
- 196: GELU's gradient and its bias's come from one kernel (model/gelu.py).
- 50: feed_forward_out's bias is added beside dropout, so that LayerNorm's backward kernel, which reads its gradient
  anyway, sums it.
With bf16 hidden states it moves 402 less than with fp32: LayerNorm keeps its normalised values in bf16 too. Without
that, it would move 101 more: the backward pass would add up LayerNorm's input again and write it in float32.
Shapes: T tokens, R tokens that a layer returns, D hidden size, F feed-forward size; N rows, I features in, O out.
"""

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bertbench.model.encoder import EncoderLayer, UnscaledStates, in_format
from bertbench.model.fp8_feed_forward import feed_forward as feed_forward_in_fp8
from bertbench.model.fp8_linear import Fp8Linear
from bertbench.model.gelu import gelu, gelu_gradient
from bertbench.model.linear import Linear, product_type, weight_and_bias_gradients, weight_gradient, with_ones_beside
from bertbench.model.loops import plain_dropout


def before_attention(layer: EncoderLayer, hidden_TD: Tensor) -> Tensor:
    """Return query, key and value of all heads: [T, D] in, [T, 3 D] out."""
    return _linear(layer.qkv, hidden_TD, with_ones=True)


def after_attention(layer: EncoderLayer, context_RD: Tensor, hidden_RD: Tensor | UnscaledStates) -> Tensor:
    """Return the layer's output from attention's output and the layer's input: [R, D]."""
    output_RD, _ = _after_attention(layer, context_RD, hidden_RD)
    return in_format(output_RD, layer.output_type)


def between_attentions(
    layer: EncoderLayer, following: EncoderLayer, context_TD: Tensor, hidden_TD: Tensor | UnscaledStates
) -> tuple[Tensor, Tensor]:
    """Compute a layer's end and the next one's beginning: hidden states [T, D], query, key and value [T, 3 D].

    Hidden states are normalised, in the residual's format. As one compiled piece it casts the hidden states and
    adds up their two gradients where they are computed: 4 launches and 0.5 GB a layer less than as two.
    """
    output_TD, normalised_TD = _after_attention(layer, context_TD, hidden_TD)
    return normalised_TD, _linear(following.qkv, output_TD, with_ones=True)


def _after_attention(
    layer: EncoderLayer, context_RD: Tensor, hidden_RD: Tensor | UnscaledStates
) -> tuple[Tensor, Tensor]:
    """Return the layer's output, and the same normalised."""
    # Before the residual: torch 2.11 takes the number of tokens from what is read first, and counts that as kept for
    # the backward pass. From a kept residual it would add up LayerNorm's input again, which moves 252 MB more.
    attended_RD = _linear(layer.attention_output, context_RD)
    residual_RD: Tensor = _Scaled.apply(*hidden_RD) if isinstance(hidden_RD, UnscaledStates) else hidden_RD
    rate = layer.hidden_dropout if layer.training else 0.0
    added_RD = hashed_dropout(attended_RD, rate, residual_RD)
    hidden_RD, _ = _layer_norm(layer.attention_norm, added_RD, layer.residual_type)
    hidden_RD = in_format(hidden_RD, layer.residual_type)
    product_RD = _feed_forward(layer.feed_forward_in, layer.feed_forward_out, hidden_RD)
    added_RD = hashed_dropout(product_RD + layer.feed_forward_out.bias, rate, hidden_RD)
    return _layer_norm(layer.feed_forward_norm, added_RD, layer.residual_type)


def _linear(module: nn.Module, input_NI: Tensor, with_ones: bool = False) -> Tensor:
    """Return a linear layer's output; `with_ones`, its bias's gradient is a column of the weights' product."""
    if not isinstance(module, Linear) or isinstance(module, Fp8Linear):  # the first: a split model's query, key, value
        output_NO: Tensor = module(input_NI)
        return output_NO
    dtype = product_type(input_NI)
    return _Linear.apply(input_NI.to(dtype), module.weight, _matrix(module, dtype), module.bias, with_ones)


def _feed_forward(first: Linear, second: Linear, hidden_RD: Tensor) -> Tensor:
    """Return the second layer's product, without its bias, with GELU of the first's output."""
    if isinstance(first, Fp8Linear) and isinstance(second, Fp8Linear):
        return feed_forward_in_fp8(first, second, hidden_RD)
    expanded_RF: Tensor = _BiasGelu.apply(_product(first, hidden_RD), first.bias)
    return _product(second, expanded_RF)


def _product(module: Linear, input_NI: Tensor) -> Tensor:
    """Return a linear layer's output without the bias."""
    dtype = product_type(input_NI)
    product_NO: Tensor = _Product.apply(input_NI.to(dtype), module.weight, _matrix(module, dtype))
    return product_NO


def _matrix(module: Linear, dtype: torch.dtype) -> Tensor:
    """Return a layer's weight in the format of its product, without a gradient."""
    if module.rounded is not None and module.rounded.dtype == dtype:
        return module.rounded
    return module.weight.detach().to(dtype)


def _layer_norm(norm: nn.LayerNorm, values_RD: Tensor, kept: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """Return hidden states, and the same normalised in the format in which they are kept, their own if None."""
    wide_RD = values_RD.to(torch.promote_types(values_RD.dtype, torch.float32))
    return _LayerNorm.apply(wide_RD, norm.weight, norm.bias, norm.eps, kept or wide_RD.dtype)


def hashed_dropout(hidden: Tensor, rate: float, residual: Tensor) -> Tensor:
    """Compute `plain_dropout` with a mask that is a hash of two keys, drawn here, and the elements' numbers.

    So the backward pass computes the mask again instead of reading it. A hash takes 12 operations an element, torch's
    own generator (Philox) about 100.
    """
    if rate == 0:
        return plain_dropout(hidden, rate, residual)
    keys = torch.randint(-(1 << 31), 1 << 31, (2,), device=hidden.device).to(torch.int32)
    hashed = hashed_numbers(hidden.shape, keys)
    # of 2^32 values. A scale from whole numbers is a constant to the compiler, from the rate one more tensor to read
    drops = round(rate * 2**32)
    is_kept = hashed >= drops - 2**31
    enlarged = 2**32 / (2**32 - drops)
    dropped = hidden * (is_kept * enlarged)
    # the sum's shape is that of its first term: see _after_attention
    return dropped + residual


def hashed_numbers(shape: torch.Size, keys: Tensor) -> Tensor:
    """Hash each element's number with two int32 keys, to int32; compare whole hashes, since low bits mix less.

    Multiplications by odd numbers alternate with shifts, as in MurmurHash3's finalizer; keys enter at both ends.
    """
    number = torch.arange(shape.numel(), dtype=torch.int32, device=keys.device).view(shape)
    hashed = (number ^ keys[0]) * -0x7A143595
    hashed = ((hashed ^ (hashed >> 16 & 0xFFFF)) + keys[1]) * -0x3D4D51CB
    return (hashed ^ (hashed >> 15 & 0x1FFFF)) * 0x2C1B3C6D


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input_NI: Tensor, weight_OI: Tensor, matrix_OI: Tensor) -> Tensor:
        ctx.save_for_backward(input_NI, matrix_OI)
        ctx.weight_type = weight_OI.dtype
        return input_NI @ matrix_OI.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, Tensor, None]:
        input_NI, matrix_OI = ctx.saved_tensors
        return gradient_NO @ matrix_OI, weight_gradient(gradient_NO, input_NI, ctx.weight_type), None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input_NI: Tensor, weight_OI: Tensor, matrix_OI: Tensor, bias_O: Tensor, with_ones: bool
    ) -> Tensor:
        width = input_NI.shape[1]
        if with_ones:
            input_NI = with_ones_beside(input_NI)
        ctx.save_for_backward(input_NI, matrix_OI)
        ctx.weight_type, ctx.with_ones = weight_OI.dtype, with_ones
        return torch.addmm(bias_O.to(input_NI.dtype), input_NI[:, :width], matrix_OI.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, Tensor, None, Tensor, None]:
        input_NI, matrix_OI = ctx.saved_tensors
        to_weight_OI, to_bias_O = weight_and_bias_gradients(gradient_NO, input_NI, ctx.weight_type, ctx.with_ones)
        return gradient_NO @ matrix_OI, to_weight_OI, None, to_bias_O, None


class _BiasGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, product_RF: Tensor, bias_F: Tensor) -> Tensor:
        ctx.save_for_backward(product_RF, bias_F)
        return gelu(product_RF, bias_F)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RF: Tensor) -> tuple[Tensor, Tensor]:
        to_product_RF, sums_BF = gelu_gradient(gradient_RF, *ctx.saved_tensors)
        return to_product_RF, sums_BF.sum(0)


class _LayerNorm(torch.autograd.Function):
    """Return hidden states and the same normalised, before weight and bias.

    The gradients of both outputs are with respect to the hidden states (model/encoder.py, UnscaledStates). So the
    backward pass adds them up, and multiplies the sum by the weight.
    """

    @staticmethod
    def forward(
        ctx: Any,
        values_RD: Tensor,
        weight_D: Tensor,
        bias_D: Tensor,
        epsilon: float,
        kept: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        variance_R1, mean_R1 = torch.var_mean(values_RD, -1, correction=0, keepdim=True)
        scale_R1 = (variance_R1 + epsilon).rsqrt()
        normalised_RD = (values_RD - mean_R1) * scale_R1
        kept_RD = in_format(normalised_RD, kept)
        ctx.save_for_backward(kept_RD, scale_R1, weight_D)
        ctx.set_materialize_grads(False)
        return normalised_RD * weight_D + bias_D, kept_RD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients_RD: Tensor | None) -> tuple[Tensor, Tensor, Tensor, None, None]:
        normalised_RD, scale_R1, weight_D = ctx.saved_tensors
        gradient_RD = reduce(torch.add, (gradient for gradient in gradients_RD if gradient is not None))
        to_normalised_RD = gradient_RD * weight_D
        mean_R1 = to_normalised_RD.mean(-1, keepdim=True)
        along_R1 = (to_normalised_RD * normalised_RD).mean(-1, keepdim=True)
        to_values_RD = (to_normalised_RD - mean_R1 - normalised_RD * along_R1) * scale_R1
        return to_values_RD, (gradient_RD * normalised_RD).sum(0), gradient_RD.sum(0), None, None


class _Scaled(torch.autograd.Function):
    """Return the hidden states of UnscaledStates.

    The backward pass returns the hidden states' gradient as that of `normalised_RD`, without the weight: _LayerNorm
    multiplies by it, and computes the gradients of weight and bias.
    """

    @staticmethod
    def forward(ctx: Any, normalised_RD: Tensor, weight_D: Tensor, bias_D: Tensor) -> Tensor:
        ctx.kept = normalised_RD.dtype
        return normalised_RD * weight_D + bias_D

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[Tensor, None, None]:
        return gradient_RD.to(ctx.kept), None, None
