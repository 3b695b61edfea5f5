"""Compute each of a linear layer's three products by the library that is fastest for it on this machine.

torch multiplies float32 matrices by MKL, and half precision by oneDNN's general products; oneDNN's products for linear
layers are a separate operator. Which is faster depends on the processor, the shape and the product. On an EPYC, oneDNN
computes weight gradients at 105 to 109 GFLOP/s a core, MKL at 92 to 98. On a Xeon with AMX, oneDNN is 3 to 20 % slower
in float32's forward product, and 1.7 times as fast for the weight gradient of 512 x 2,048 in bfloat16.

The weight gradient reads its left matrix by columns. In half precision both libraries copy that matrix first. Copying
the narrower of the two matrices instead takes a fifth of the time on that Xeon. machine/choose_arithmetic.py therefore
measures all ways; torch's own product is the default.

oneDNN generates code for each size that it meets, which takes half a millisecond, and keeps the code. So oneDNN pays
off for wide layers and for batches of few sizes (loading/filler.py), which `wants_few_sizes` in options.py requests.

Shapes: N tokens, I features in, O features out.
"""

import platform
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from bertbench.model.options import BIAS_COLUMNS, SIZE_STEP

# A product whose output is this much wider than its input (the scores over the vocabulary) takes longer than generating
# code for its size. An example is the input's gradient for 311 rows, 256 features and 30,522 words in float32 on an
# EPYC: it takes 26 ms by oneDNN and 48 ms by MKL.
_MUCH_WIDER = 16

Library = Literal["torch", "onednn", "copied"]
"""`copied` is torch's product after the narrower matrix was copied transposed."""


class Products(NamedTuple):
    """The library for each product of a linear layer; only the weight gradient can be `copied`."""

    forward: Library = "torch"
    to_input: Library = "torch"
    to_weight: Library = "torch"


BY_TORCH = Products()


class Linear(nn.Linear):
    """A `torch.nn.Linear` that computes by the function `linear`."""

    products = BY_TORCH
    rounded: Tensor | None = None
    """A 16-bit copy of the weight for compiled products; None where no copy is kept (rounded_weights.py)."""

    def forward(self, input_NI: Tensor) -> Tensor:
        """Multiply: [N, I] in, [N, O] out."""
        return linear(input_NI, self.weight, self.bias, self.products)


def linear(input_NI: Tensor, weight_OI: Tensor, bias_O: Tensor, products: Products = BY_TORCH) -> Tensor:
    """Return input @ weight.T + bias, by the libraries in `products` if `onednn_takes` the tensors, else by torch."""
    if products != BY_TORCH and torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        input_NI = input_NI.to(dtype)
        weight_OI = weight_OI.to(dtype)
        bias_O = bias_O.to(dtype)
    if products == BY_TORCH or not onednn_takes(input_NI, weight_OI):
        return functional.linear(input_NI, weight_OI, bias_O)
    output_NO: Tensor = _ByProducts.apply(input_NI, weight_OI, bias_O, products)
    return output_NO


def product_type(values: Tensor) -> torch.dtype:
    """Return the type in which products of these values are computed: autocast's type, or the values' own."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype


@cache
def onednn_multiplies(dtype: torch.dtype) -> bool:
    """Return whether oneDNN's products for linear layers support the format: on x86 CPUs, bfloat16 needs AVX-512."""
    return (
        platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and (dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()))
    )


def onednn_takes(input_NI: Tensor, weight_OI: Tensor) -> bool:
    """Return whether oneDNN can multiply these tensors: on a CPU, outside torch.compile, and of a static size."""
    return (
        not torch.compiler.is_compiling()
        and input_NI.device.type == "cpu"
        and onednn_multiplies(weight_OI.dtype)
        and type(weight_OI) in (Tensor, nn.Parameter)  # not a DTensor, which is sharded over ranks
        and (len(input_NI) % SIZE_STEP == 0 or len(weight_OI) >= _MUCH_WIDER * weight_OI.shape[1])
    )


class _ByProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input_NI: Tensor, weight_OI: Tensor, bias_O: Tensor, products: Products) -> Tensor:
        ctx.save_for_backward(input_NI, weight_OI)
        ctx.products = products
        return forward_product(input_NI, weight_OI, bias_O, products.forward)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        input_NI, weight_OI = ctx.saved_tensors
        return (
            input_product(gradient_NO, weight_OI, ctx.products.to_input),
            weight_product(gradient_NO, input_NI, ctx.products.to_weight),
            gradient_NO.sum(0),
            None,
        )


def forward_product(input_NI: Tensor, weight_OI: Tensor, bias_O: Tensor, library: Library) -> Tensor:
    """Return input @ weight.T + bias: [N, O]."""
    if library == "torch":
        return torch.addmm(bias_O, input_NI, weight_OI.T)
    return _onednn(input_NI, weight_OI, bias_O)


def input_product(gradient_NO: Tensor, weight_OI: Tensor, library: Library) -> Tensor:
    """Return the input's gradient, gradient @ weight: [N, I]."""
    if library == "torch":
        return gradient_NO @ weight_OI
    return _onednn(gradient_NO, weight_OI.T, None)


def weight_product(gradient_NO: Tensor, input_NI: Tensor, library: Library) -> Tensor:
    """Return the weight's gradient, gradient.T @ input: [O, I]."""
    if library == "copied":
        if gradient_NO.shape[1] <= input_NI.shape[1]:
            return gradient_NO.T.contiguous() @ input_NI
        return (input_NI.T.contiguous() @ gradient_NO).T.contiguous()
    if library == "torch":
        return gradient_NO.T @ input_NI
    return _onednn(gradient_NO.T, input_NI.T, None)


def widens(device_type: str) -> bool:
    """Return whether the device's products of 16-bit matrices can write float32."""
    return device_type == "cuda"


def weight_gradient(gradient_NO: Tensor, input_NI: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a weight's gradient by torch's product: [O, I].

    On devices where a 16-bit product can write float32 (`widens`), the product itself writes it.
    """
    is_half = input_NI.dtype != torch.float32
    if widens(input_NI.device.type) and dtype == torch.float32 and is_half:
        return torch.mm(gradient_NO.T, input_NI, out_dtype=dtype)
    return (gradient_NO.T @ input_NI).to(dtype)


def with_ones_beside(input_NI: Tensor) -> Tensor:
    """Return the input with added columns of ones, which let `weight_and_bias_gradients` compute a bias's gradient."""
    return torch.cat((input_NI, input_NI.new_ones(len(input_NI), BIAS_COLUMNS)), 1)


def weight_and_bias_gradients(
    gradient_NO: Tensor, input_NI: Tensor, dtype: torch.dtype, with_ones: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of a layer's weight [O, I] and bias [O]; with `with_ones`, one product computes both."""
    if not with_ones:
        return weight_gradient(gradient_NO, input_NI, dtype), gradient_NO.sum(0, dtype=dtype)
    with_bias_OI = gradient_NO.T @ input_NI
    width = input_NI.shape[1] - BIAS_COLUMNS
    return with_bias_OI[:, :width].to(dtype), with_bias_OI[:, width].to(dtype)


BLOCK_ROWS = 128
"""Rows of a block in `sums_of_blocks`, whose sums take 1.6 % of the bytes of a matrix in bf16."""


def blocks_of(rows: int) -> int:
    """Return the number of blocks for this number of rows; the last block may have fewer than BLOCK_ROWS."""
    return (rows + BLOCK_ROWS - 1) // BLOCK_ROWS


def sums_of_blocks(gradient_NO: Tensor) -> Tensor:
    """Return the sums over each block's rows, which add up to a bias's gradient: [blocks, O].

    On a GPU, a kernel that computes blocks of a gradient also sums them.
    """
    return torch.stack([rows_NO.sum(0) for rows_NO in gradient_NO.split(BLOCK_ROWS)])


def _onednn(left_NI: Tensor, right_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    product_NO: Tensor = torch.ops.mkldnn._linear_pointwise(left_NI, right_OI, bias_O, "none", [], "")
    return product_NO
