"""Multiply in fp8 in the encoder layers: all three products of a linear layer.

    output          e4m3 input      x e4m3 weight
    input gradient  e5m2 gradient   x e4m3 weight
    weight gradient e5m2 gradient^T x e4m3 input

Query, key and value, attention's output and both feed-forward products are converted. Embeddings are looked up, and
heads stay in bf16: they read a seventh of the tokens, 1.5 % of BERT-Large's products, and their scores make the loss.
model/fp8_scaling.py chooses the scales, model/fp8_casts.py casts and transposes, and model/fp8_feed_forward.py joins
both feed-forward products. Shapes: N tokens, M the same rounded up to a multiple of 16, I features in, O features out.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bertbench.common.errors import ConfigError
from bertbench.model.bert import Bert
from bertbench.model.format_needs import format_problem
from bertbench.model.fp8_casts import cast_gradient, cast_weight, transposed
from bertbench.model.fp8_scaling import (
    E4M3,
    E5M2,
    DelayedScaling,
    LinearScaling,
    TensorScaling,
    observe,
    to_fp8,
)
from bertbench.model.linear import Linear, product_type

_OUTPUT = torch.bfloat16


def scaled_product(
    left_NK: Tensor,
    right_KM: Tensor,
    left_inverse: Tensor,
    right_inverse: Tensor,
    bias_M: Tensor | None = None,
    dtype: torch.dtype = _OUTPUT,
) -> Tensor:
    """Return the product of two fp8 matrices times the inverses of their scales, plus bias, in `dtype`: [N, M].

    K and M are multiples of 16. Hopper's tensor cores may keep fewer bits of sums, 14: so do all published BERT
    submissions in fp8, in all three products of a layer (MLPerf Training 3.0 to 5.0). Exact sums take about twice the
    time; other GPUs make no difference between the two.
    """
    by_columns_KM = right_KM.T.contiguous().T  # as the hardware wants it; no copy of one that is
    on_gpu = left_NK.device.type == "cuda"
    return torch._scaled_mm(
        left_NK.contiguous(),
        by_columns_KM,
        scale_a=left_inverse,
        scale_b=right_inverse,
        bias=bias_M,
        out_dtype=dtype,
        use_fast_accum=on_gpu,
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
        return self._multiplied(input_NI, self.bias)

    def product(self, input_NI: Tensor) -> Tensor:
        """Return the layer's output without the bias."""
        return self._multiplied(input_NI, None)

    def _multiplied(self, input_NI: Tensor, bias_O: Tensor | None) -> Tensor:
        output_NO: Tensor = _Product.apply(
            self.observed(input_NI), self.weight, *self.cast_weight(), bias_O, *self.scaling.tensors()
        )
        return output_NO

    def observed(self, input_NI: Tensor) -> Tensor:
        """Return the input in the format of products; in training, observe it."""
        typed_NI = input_NI.to(product_type(input_NI))
        if self.training:
            observe(self.scaling.input, typed_NI)
        return typed_NI

    def cast_weight(self) -> tuple[Tensor, Tensor]:
        """Return the weight in fp8, [O, I] and [I, O]; in training, observe it."""
        weight_OI = self.weight.detach()
        scaling = self.scaling.weight
        if self.training:
            weight8_OI, weight8_IO = cast_weight(weight_OI, scaling.scale, scaling.amax)
            return weight8_OI, weight8_IO
        weight8_OI = to_fp8(weight_OI, scaling.scale, E4M3)
        return weight8_OI, weight8_OI.T


def weight_gradient_from_fp8(
    gradient8_OM: Tensor, input8_IM: Tensor, gradient: TensorScaling, given: TensorScaling, dtype: torch.dtype
) -> Tensor:
    """Return a weight's gradient, [O, I], from transposed operands and their scaling."""
    widened = torch.float32 if dtype == torch.float32 else _OUTPUT  # formats that the product can write
    return scaled_product(gradient8_OM, input8_IM.T, gradient.inverse, given.inverse, dtype=widened).to(dtype)


OF_SCALING = (None,) * 9
"""The gradients of a LinearScaling's tensors: they have none."""


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input_NI: Tensor,
        weight_OI: Tensor,
        weight8_OI: Tensor,
        weight8_IO: Tensor,
        bias_O: Tensor | None,
        *tensors: Tensor,
    ) -> Tensor:
        scaling = LinearScaling.of(tensors)
        input8_NI = to_fp8(input_NI, scaling.input.scale, E4M3)
        # Transposed here, because in the backward pass torch's compiler would cast the input again; and before the
        # product, whose layout constraint would otherwise make the compiler write the cast twice
        ctx.save_for_backward(transposed(input8_NI), weight8_IO, *tensors)
        ctx.weight_type = weight_OI.dtype
        ctx.has_bias = bias_O is not None
        typed_bias_O = None if bias_O is None else bias_O.to(_OUTPUT)
        return scaled_product(input8_NI, weight8_OI.T, scaling.input.inverse, scaling.weight.inverse, typed_bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor | None, ...]:
        input8_IM, weight8_IO, *tensors = ctx.saved_tensors
        scaling = LinearScaling.of(tensors)
        gradient = scaling.gradient
        to_bias_O = None
        if ctx.has_bias:
            gradient8_NO, gradient8_OM, sums_BO = cast_gradient(gradient_NO, gradient.scale, gradient.amax)
            to_bias_O = sums_BO.sum(0)
        else:
            gradient8_NO, gradient8_OM = observe_and_cast_gradient(gradient_NO, gradient)
        to_input_NI = scaled_product(gradient8_NO, weight8_IO.T, gradient.inverse, scaling.weight.inverse)
        to_weight_OI = weight_gradient_from_fp8(gradient8_OM, input8_IM, gradient, scaling.input, ctx.weight_type)
        return to_input_NI, to_weight_OI, None, None, to_bias_O, *OF_SCALING


def observe_and_cast_gradient(gradient_NO: Tensor, scaling: TensorScaling) -> tuple[Tensor, Tensor]:
    """Return an output's gradient in fp8, [N, O] and [O, M], and observe it.

    torch's compiler observes and casts it in the kernel that computes it; `cast_gradient` would read it again.
    """
    observe(scaling, gradient_NO)
    gradient8_NO = to_fp8(gradient_NO, scaling.scale, E5M2)
    return gradient8_NO, transposed(gradient8_NO)


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
    places = [(layer, name) for layer in model.encoder_layers() for name in CONVERTED]
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


CONVERTED = ("qkv", "attention_output", "feed_forward_in", "feed_forward_out")


def _observe_all(scaling: LinearScaling, linear: Linear, inputs: tuple[Tensor], output_NO: Tensor) -> None:
    """Observe a layer's operands; a forward hook."""
    observe(scaling.input, inputs[0])
    observe(scaling.weight, linear.weight)
    output_NO.register_hook(partial(observe, scaling.gradient))
