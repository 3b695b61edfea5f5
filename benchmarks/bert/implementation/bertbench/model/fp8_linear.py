"""Multiply in fp8 in the encoder layers: two of a linear layer's three products; a weight's gradient stays in bf16.

    output          e4m3 input    x e4m3 weight
    input gradient  e5m2 gradient x e4m3 weight
    weight gradient bf16 gradient x bf16 input: fp8 would want both matrices by columns, another copy of each

Query, key and value, attention's output and both feed-forward products are converted. Embeddings are looked up, and
heads stay in bf16: they read a seventh of the tokens, 1.5 % of BERT-Large's products, and their scores make the loss.
model/fp8_scaling.py chooses the scales. Shapes: N tokens, I features in, O features out.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.common.errors import ConfigError
from bertbench.model.bert import Bert
from bertbench.model.encoder import in_format
from bertbench.model.format_needs import format_problem
from bertbench.model.fp8_scaling import (
    E4M3,
    E5M2,
    DelayedScaling,
    LinearScaling,
    TensorScaling,
    observe,
    to_fp8,
)
from bertbench.model.fp8_weight import cast_weight
from bertbench.model.gelu_gradient import gelu_gradient_to_fp8
from bertbench.model.linear import Linear, product_type, weight_and_bias_gradients, weight_gradient, with_ones_beside

_OUTPUT = torch.bfloat16


def scaled_product(
    left_NK: Tensor,
    right_KM: Tensor,
    left_inverse: Tensor,
    right_inverse: Tensor,
    bias_M: Tensor | None = None,
    fast: bool = False,
) -> Tensor:
    """Return the product of two fp8 matrices times the inverses of their scales, plus bias, in bf16: [N, M].

    K and M are multiples of 16. `fast` lets Hopper's tensor cores keep fewer bits of sums, which Transformer Engine
    allows forward and not for gradients.
    """
    by_columns_KM = right_KM.T.contiguous().T  # as the hardware wants it; no copy of one that is
    on_gpu = left_NK.device.type == "cuda"
    return torch._scaled_mm(
        left_NK.contiguous(),
        by_columns_KM,
        scale_a=left_inverse,
        scale_b=right_inverse,
        bias=bias_M,
        out_dtype=_OUTPUT,
        use_fast_accum=fast and on_gpu,
    )


class Fp8Linear(Linear):
    """A linear layer that takes over the parameters of another one, and multiplies in fp8."""

    def __init__(self, linear: Linear, scaling: LinearScaling) -> None:
        nn.Module.__init__(self)  # without new parameters
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.weight = linear.weight
        self.bias = linear.bias
        self.scaling = scaling

    def forward(self, input_NI: Tensor) -> Tensor:
        """Multiply and add the bias: [N, I] in, [N, O] out."""
        return self.with_bias(input_NI)

    def with_bias(self, input_NI: Tensor, with_ones: bool = False) -> Tensor:
        """Return the layer's output; `with_ones`, its bias's gradient is a column of the weights' product."""
        return self._multiplied(input_NI, self.bias, with_ones)

    def product(self, input_NI: Tensor) -> Tensor:
        """Return the layer's output without the bias."""
        return self._multiplied(input_NI, None, with_ones=False)

    def with_gelu(self, input_NI: Tensor) -> Tensor:
        """Return GELU (by tanh) of the layer's output; backward, the kernel that computes its gradient casts that."""
        output_NO: Tensor = _ProductGelu.apply(
            self._observed(input_NI), self.weight, *self._cast_weight(), self.bias, *self.scaling.tensors()
        )
        return output_NO

    def _multiplied(self, input_NI: Tensor, bias_O: Tensor | None, with_ones: bool) -> Tensor:
        output_NO: Tensor = _Product.apply(
            self._observed(input_NI), self.weight, *self._cast_weight(), bias_O, with_ones, *self.scaling.tensors()
        )
        return output_NO

    def _observed(self, input_NI: Tensor) -> Tensor:
        """Return the input in the format of products; in training, observe it."""
        if self.training:
            # Before it is rounded: with_ones rounds it into a wider matrix, and torch's compiler would take the maxima
            # of that one's rows in a second loop, which reads back what the first wrote
            observe(self.scaling.input, input_NI)
        return input_NI.to(product_type(input_NI))

    def _cast_weight(self) -> tuple[Tensor, Tensor]:
        """Return the weight in fp8, [O, I] and [I, O]; in training, observe it."""
        weight_OI = self.weight.detach()
        scaling = self.scaling.weight
        if self.training:
            weight8_OI, weight8_IO = cast_weight(weight_OI, scaling.scale, scaling.amax)
            return weight8_OI, weight8_IO
        weight8_OI = to_fp8(weight_OI, scaling.scale, E4M3)
        return weight8_OI, weight8_OI.T


_OF_SCALING = (None,) * 9  # a LinearScaling's tensors have no gradients


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input_NI: Tensor,
        weight_OI: Tensor,
        weight8_OI: Tensor,
        weight8_IO: Tensor,
        bias_O: Tensor | None,
        with_ones: bool,
        *tensors: Tensor,
    ) -> Tensor:
        scaling = LinearScaling.of(tensors)
        kept_NI = with_ones_beside(input_NI) if with_ones else input_NI
        ctx.save_for_backward(kept_NI, weight8_IO, scaling.weight.inverse, *scaling.gradient)
        ctx.weight_type = weight_OI.dtype
        ctx.with_ones = with_ones
        ctx.has_bias = bias_O is not None
        typed_bias_O = None if bias_O is None else bias_O.to(_OUTPUT)
        return _forward_product(input_NI, weight8_OI, scaling, typed_bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor | None, ...]:
        kept_NI, weight8_IO, weight_inverse, *of_gradient = ctx.saved_tensors
        gradient = TensorScaling(*of_gradient)
        observe(gradient, gradient_NO)
        gradient8_NO = to_fp8(gradient_NO, gradient.scale, E5M2)
        to_input_NI = scaled_product(gradient8_NO, weight8_IO.T, gradient.inverse, weight_inverse)
        to_bias_O = None
        if ctx.has_bias:
            to_weight_OI, to_bias_O = weight_and_bias_gradients(gradient_NO, kept_NI, ctx.weight_type, ctx.with_ones)
        else:
            to_weight_OI = weight_gradient(gradient_NO, kept_NI, ctx.weight_type)
        return to_input_NI, to_weight_OI, None, None, to_bias_O, None, *_OF_SCALING


class _ProductGelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input_NI: Tensor,
        weight_OI: Tensor,
        weight8_OI: Tensor,
        weight8_IO: Tensor,
        bias_O: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        scaling = LinearScaling.of(tensors)
        product_NO = _forward_product(input_NI, weight8_OI, scaling, None)
        ctx.save_for_backward(input_NI, product_NO, bias_O, weight8_IO, scaling.weight.inverse, *scaling.gradient)
        ctx.weight_type = weight_OI.dtype
        return in_format(functional.gelu(product_NO + bias_O, approximate="tanh"), product_NO.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor | None, ...]:
        input_NI, product_NO, bias_O, weight8_IO, weight_inverse, *of_gradient = ctx.saved_tensors
        scaling = TensorScaling(*of_gradient)
        to_product_NO, sums_BO, to_product8_NO = gelu_gradient_to_fp8(
            gradient_NO, product_NO, bias_O, scaling.scale, scaling.amax
        )
        to_input_NI = scaled_product(to_product8_NO, weight8_IO.T, scaling.inverse, weight_inverse)
        to_weight_OI = weight_gradient(to_product_NO, input_NI, ctx.weight_type)
        return to_input_NI, to_weight_OI, None, None, sums_BO.sum(0), *_OF_SCALING


def _forward_product(input_NI: Tensor, weight8_OI: Tensor, scaling: LinearScaling, bias_O: Tensor | None) -> Tensor:
    input8_NI = to_fp8(input_NI, scaling.input.scale, E4M3)
    return scaled_product(input8_NI, weight8_OI.T, scaling.input.inverse, scaling.weight.inverse, bias_O, fast=True)


def check_device(device: torch.device) -> None:
    """Raise ConfigError if a GPU has no products in fp8, or Triton isn't there to cast for them."""
    if device.type != "cuda":
        return
    problem = format_problem("fp8", torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    if problem is not None:
        raise ConfigError(problem)
    if find_spec("triton") is None:
        raise ConfigError(
            "precision.compute is fp8, but Triton isn't installed, in which a GPU's casts are written; install "
            "bertbench[kernels], or add --set precision.compute=bf16"
        )


def multiply_in_fp8(model: Bert, run_backward: Callable[[], None]) -> DelayedScaling:
    """Let a model's encoder layers multiply in fp8; return their scaling, whose `start` has still to be called.

    `run_backward` runs a forward and a backward pass, still in bf16, whose magnitudes the first step's scales follow:
    with scales of 1 its gradients, often below 2^-16, would become 0. Raises ConfigError if the device has no fp8.
    """
    device = model.embeddings.word.weight.device
    check_device(device)
    places = [(layer, name) for layer in model.encoder_layers() for name in _CONVERTED]
    scaling = DelayedScaling(len(places), device)
    watched = []
    for (layer, name), scales in zip(places, scaling.layers, strict=True):
        watched.append(getattr(layer, name).register_forward_hook(partial(_observe_all, scales)))
    run_backward()
    model.zero_grad(set_to_none=True)
    for hook in watched:
        hook.remove()
    for (layer, name), scales in zip(places, scaling.layers, strict=True):
        setattr(layer, name, Fp8Linear(getattr(layer, name), scales))
    return scaling


_CONVERTED = ("qkv", "attention_output", "feed_forward_in", "feed_forward_out")


def _observe_all(scaling: LinearScaling, linear: Linear, inputs: tuple[Tensor], output_NO: Tensor) -> None:
    """Observe a layer's operands; a forward hook."""
    observe(scaling.input, inputs[0])
    observe(scaling.weight, linear.weight)
    output_NO.register_hook(partial(observe, scaling.gradient))
