"""Time the kernels of a BERT-Large step one by one.

Each kernel is launched many times in a row between two events, after products have warmed up the GPU.
Shapes: T tokens, I features in, O features out, F feed-forward size, H heads, K width of a head.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertbench.common.phase_clock import wait_for_device
from bertbench.model.attention import attention
from bertbench.model.fp8_casts import cast_gradient, cast_weight, transposed
from bertbench.model.fp8_gelu import gelu_gradient_to_fp8, gelu_to_fp8
from bertbench.model.fp8_linear import scaled_product
from bertbench.model.fp8_scaling import E4M3, E5M2
from bertbench.model.gelu import gelu_gradient
from bertbench.model.linear import widens
from bertbench.model.sequences import Sequences
from lab.bench.batches import wikipedia_batches
from lab.bench.gpu.device_state import clocks_and_power, cudnn_device
from lab.bench.gpu.marks import mark, milliseconds_between
from lab.bench.gpu.testbed import Row, Unfit, attempt, print_row

_ROUNDS = 5
_SEED = 1
_EXTRA_COLUMNS = (0, 8, 64)  # added to the input of query, key and value: none; for the bias's gradient; a cache line


class RateSizes(NamedTuple):
    """The sizes of the kernels."""

    device: torch.device
    tokens: int
    width: int
    inner: int
    heads: int
    lengths: list[int]
    """The lengths of the sequences that attention reads, longest first."""
    copied: int
    """The bytes of the tensor that is copied."""
    repeats: int
    """The number of launches between two events."""
    warm_s: float
    """The seconds of products that warm up the GPU."""


class Kernel(NamedTuple):
    """One kernel, or the few kernels of one piece of work."""

    name: str
    build: Callable[[], Callable[[], object]]
    """Makes the operands, and returns the function that launches the kernel."""
    flops: float = 0.0
    moved: float = 0.0
    """The bytes that it has to read and write."""


def sizes_here() -> RateSizes:
    """Return BERT-Large's sizes for 96 samples on a GPU, tiny sizes on a CPU."""
    if torch.cuda.is_available():
        lengths = wikipedia_batches(96, 1, _SEED)[0].lengths.tolist()
        return RateSizes(torch.device("cuda"), 24_576, 1024, 4096, 16, lengths, 1 << 30, 20, 20.0)
    return RateSizes(torch.device("cpu"), 96, 32, 80, 2, [32, 13, 7], 1 << 12, 2, 0.0)


def rates() -> None:
    """Print the state of the GPU, cuDNN's descriptor of it, and the rate of each kernel."""
    sizes = sizes_here()
    _print_if_available("state", partial(clocks_and_power, "before"))
    _print_if_available("cudnn", cudnn_device)
    _warm_up(sizes)
    for kernel in kernels(sizes):
        attempt(kernel.name, partial(_print_rate, kernel, sizes))
    _print_if_available("state", partial(clocks_and_power, "after"))


def kernels(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield the kernels, each with its operations and with the bytes that it has to move."""
    yield from _products(sizes)
    yield from _strided_products(sizes)
    yield from _products_in_8_bits(sizes)
    yield from _attentions(sizes)
    yield from _passes(sizes)


def rate_of(kernel: Kernel, sizes: RateSizes) -> Row:
    """Return the median time of a kernel, and its rates."""
    launch = kernel.build()
    for _ in range(2):  # the first launch compiles, or chooses an algorithm
        launch()
    times = []
    for _ in range(_ROUNDS):
        begun = mark(sizes.device)
        for _ in range(sizes.repeats):
            launch()
        ended = mark(sizes.device)
        wait_for_device(sizes.device)
        times.append(milliseconds_between(begun, ended) / sizes.repeats)
    ms = statistics.median(times)
    row: Row = {"kernel": kernel.name, "ms": round(ms, 5)}
    if kernel.flops:
        row["tflops"] = round(kernel.flops / ms / 1e9, 3)
    if kernel.moved:
        row["gb_per_s"] = round(kernel.moved / ms / 1e6, 3)
    return row | {"holds": True}


def _print_rate(kernel: Kernel, sizes: RateSizes) -> None:
    print_row(rate_of(kernel, sizes))


def _print_if_available(what: str, answer: Callable[[], Row]) -> None:
    try:
        print_row(answer())
    except Unfit as reason:
        print_row({"what": what, "not_reached": str(reason)})


def _warm_up(sizes: RateSizes) -> None:
    """Multiply until clocks and temperature are as in a long run."""
    (first, *_) = _products(sizes)
    launch = first.build()
    spent_ms = 0.0
    while spent_ms < 1e3 * sizes.warm_s:
        begun = mark(sizes.device)
        for _ in range(sizes.repeats):
            launch()
        ended = mark(sizes.device)
        wait_for_device(sizes.device)
        spent_ms += milliseconds_between(begun, ended)


def _layers(sizes: RateSizes) -> dict[str, tuple[int, int]]:
    """Return the input features and output features of a layer's products."""
    width, inner = sizes.width, sizes.inner
    return {
        "qkv": (width, 3 * width),
        "attention_output": (width, width),
        "feed_forward_in": (width, inner),
        "feed_forward_out": (inner, width),
    }


def _drawn(sizes: RateSizes, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device=sizes.device).to(dtype)


def _products(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield the twelve products of a layer, as model/compiled_layer.py computes them."""
    for layer, (features_in, features_out) in _layers(sizes).items():
        flops = 2.0 * sizes.tokens * features_in * features_out
        shape = sizes, features_in, features_out
        yield Kernel(f"bf16 {layer} forward", partial(_forward, *shape), flops)
        yield Kernel(f"bf16 {layer} to input", partial(_to_input, *shape), flops)
        yield Kernel(f"bf16 {layer} to weight, fp32 written", partial(_to_weight, *shape), flops)


def _forward(sizes: RateSizes, features_in: int, features_out: int) -> Callable[[], object]:
    input_TI = _drawn(sizes, sizes.tokens, features_in)
    weight_OI = _drawn(sizes, features_out, features_in)
    return lambda: input_TI @ weight_OI.T


def _to_input(sizes: RateSizes, features_in: int, features_out: int) -> Callable[[], object]:
    gradient_TO = _drawn(sizes, sizes.tokens, features_out)
    weight_OI = _drawn(sizes, features_out, features_in)
    return lambda: gradient_TO @ weight_OI


def _to_weight(sizes: RateSizes, features_in: int, features_out: int) -> Callable[[], object]:
    gradient_TO = _drawn(sizes, sizes.tokens, features_out)
    input_TI = _drawn(sizes, sizes.tokens, features_in)
    if widens(sizes.device.type):
        return lambda: torch.mm(gradient_TO.T, input_TI, out_dtype=torch.float32)
    return lambda: (gradient_TO.T @ input_TI).to(torch.float32)


def _strided_products(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield the products of query, key and value, for inputs with added columns, whose rows are longer."""
    features_in, features_out = _layers(sizes)["qkv"]
    for extra in _EXTRA_COLUMNS:
        stride = features_in + extra
        flops = 2.0 * sizes.tokens * features_out
        yield Kernel(
            f"bf16 qkv forward, rows of {stride}", partial(_strided_forward, sizes, extra), flops * features_in
        )
        yield Kernel(f"bf16 qkv to weight, rows of {stride}", partial(_strided_to_weight, sizes, extra), flops * stride)


def _strided_forward(sizes: RateSizes, extra: int) -> Callable[[], object]:
    features_in, features_out = _layers(sizes)["qkv"]
    input_TI = _drawn(sizes, sizes.tokens, features_in + extra)[:, :features_in]
    weight_OI = _drawn(sizes, features_out, features_in)
    return lambda: input_TI @ weight_OI.T


def _strided_to_weight(sizes: RateSizes, extra: int) -> Callable[[], object]:
    features_in, features_out = _layers(sizes)["qkv"]
    input_TI = _drawn(sizes, sizes.tokens, features_in + extra)
    gradient_TO = _drawn(sizes, sizes.tokens, features_out)
    return lambda: gradient_TO.T @ input_TI


def _products_in_8_bits(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield the same products in fp8: gradients in e5m2, everything else in e4m3, the right operand by columns."""
    for layer, (features_in, features_out) in _layers(sizes).items():
        flops = 2.0 * sizes.tokens * features_in * features_out
        shape = sizes, features_in, features_out
        yield Kernel(f"fp8 {layer} forward", partial(_forward_in_8_bits, *shape), flops)
        yield Kernel(f"fp8 {layer} to input", partial(_to_input_in_8_bits, *shape), flops)
        yield Kernel(f"fp8 {layer} to weight", partial(_to_weight_in_8_bits, *shape), flops)


def _forward_in_8_bits(sizes: RateSizes, features_in: int, features_out: int) -> Callable[[], object]:
    input_TI = _drawn(sizes, sizes.tokens, features_in, dtype=E4M3)
    weight_OI = _drawn(sizes, features_out, features_in, dtype=E4M3)
    scale = torch.ones((), device=sizes.device)
    return lambda: scaled_product(input_TI, weight_OI.T, scale, scale)


def _to_input_in_8_bits(sizes: RateSizes, features_in: int, features_out: int) -> Callable[[], object]:
    gradient_TO = _drawn(sizes, sizes.tokens, features_out, dtype=E5M2)
    weight_IO = _drawn(sizes, features_in, features_out, dtype=E4M3)
    scale = torch.ones((), device=sizes.device)
    return lambda: scaled_product(gradient_TO, weight_IO.T, scale, scale)


def _to_weight_in_8_bits(sizes: RateSizes, features_in: int, features_out: int) -> Callable[[], object]:
    gradient_OT = _drawn(sizes, features_out, sizes.tokens, dtype=E5M2)
    input_IT = _drawn(sizes, features_in, sizes.tokens, dtype=E4M3)
    scale = torch.ones((), device=sizes.device)
    return lambda: scaled_product(gradient_OT, input_IT.T, scale, scale, dtype=torch.float32)


def _attentions(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield attention on Wikipedia's lengths, by the kernel that a run uses on this device."""
    pairs = sum(length**2 for length in sizes.lengths)
    for dropout in (0.1, 0.0):
        forward = partial(_attention, sizes, dropout, backward=False)
        forward_and_backward = partial(_attention, sizes, dropout, backward=True)
        yield Kernel(f"attention forward, dropout {dropout}", forward, 4.0 * pairs * sizes.width)
        flops = 12.0 * pairs * sizes.width
        yield Kernel(f"attention forward and backward, dropout {dropout}", forward_and_backward, flops)


def _attention(sizes: RateSizes, dropout: float, backward: bool) -> Callable[[], object]:
    sequences = Sequences.of(np.array(sizes.lengths))
    on_device = Sequences(sequences.cu_seqlens_S1.to(sizes.device), sequences.groups)
    head_width = sizes.width // sizes.heads
    qkv_T3HK = _drawn(sizes, sum(sizes.lengths), 3, sizes.heads, head_width).requires_grad_(backward)
    gradient_THK = _drawn(sizes, sum(sizes.lengths), sizes.heads, head_width)
    if not backward:
        return lambda: attention(qkv_T3HK, on_device, dropout)
    return lambda: torch.autograd.grad(attention(qkv_T3HK, on_device, dropout), qkv_T3HK, gradient_THK)


def _passes(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield kernels that memory limits: a copy, GELU's gradient, and what casts to fp8."""
    elements = sizes.tokens * sizes.inner
    weights = sizes.width * sizes.inner
    cast = 2.0  # bytes of an element in fp8, plain and transposed
    yield Kernel("copy", partial(_copy, sizes), moved=2.0 * sizes.copied)
    yield Kernel("GELU's gradient", partial(_gelu_gradient, sizes), moved=3 * 2.0 * elements)
    yield Kernel("GELU in fp8", partial(_gelu_to_fp8, sizes), moved=(2.0 + cast) * elements)
    yield Kernel("GELU's gradient in fp8", partial(_gelu_gradient_to_fp8, sizes), moved=(2 * 2.0 + cast) * elements)
    yield Kernel("cast of a weight to fp8", partial(_cast_of_weight, sizes), moved=(4.0 + cast) * weights)
    yield Kernel("cast of a gradient to fp8", partial(_cast_of_gradient, sizes), moved=(2.0 + cast) * elements)
    yield Kernel("transposition in fp8", partial(_transposition, sizes), moved=cast * elements)


def _copy(sizes: RateSizes) -> Callable[[], object]:
    source = torch.ones(sizes.copied, dtype=torch.int8, device=sizes.device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _gelu_gradient(sizes: RateSizes) -> Callable[[], object]:
    gradient_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    product_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    bias_F = torch.zeros(sizes.inner, device=sizes.device)
    return lambda: gelu_gradient(gradient_TF, product_TF, bias_F)


def _gelu_to_fp8(sizes: RateSizes) -> Callable[[], object]:
    product_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    bias_F = torch.zeros(sizes.inner, device=sizes.device)
    scale, amax = _scale_and_amax(sizes)
    return lambda: gelu_to_fp8(product_TF, bias_F, scale, amax)


def _gelu_gradient_to_fp8(sizes: RateSizes) -> Callable[[], object]:
    gradient_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    product_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    bias_F = torch.zeros(sizes.inner, device=sizes.device)
    scale, amax = _scale_and_amax(sizes)
    return lambda: gelu_gradient_to_fp8(gradient_TF, product_TF, bias_F, scale, amax)


def _cast_of_weight(sizes: RateSizes) -> Callable[[], object]:
    weight_OI = _drawn(sizes, sizes.inner, sizes.width, dtype=torch.float32)
    scale, amax = _scale_and_amax(sizes)
    return lambda: cast_weight(weight_OI, scale, amax)


def _cast_of_gradient(sizes: RateSizes) -> Callable[[], object]:
    gradient_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    scale, amax = _scale_and_amax(sizes)
    return lambda: cast_gradient(gradient_TF, scale, amax)


def _transposition(sizes: RateSizes) -> Callable[[], object]:
    values_TF = _drawn(sizes, sizes.tokens, sizes.inner).to(torch.float8_e4m3fn)
    return lambda: transposed(values_TF)


def _scale_and_amax(sizes: RateSizes) -> tuple[Tensor, Tensor]:
    return torch.ones((), device=sizes.device), torch.zeros((), device=sizes.device)
