"""Time the kernels of a BERT-Large step one by one, each for half a second, the surest first.

What is in 8 bits is a part of its own, in a process of its own: after an error on the device, a process can't use it.
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
from bertbench.config.optimizer import Implementation, OptimizerSettings
from bertbench.model.attention import attention
from bertbench.model.bert import Bert
from bertbench.model.fp8_casts import cast_gradient, cast_weight, transposed
from bertbench.model.fp8_gelu import gelu_gradient_to_fp8, gelu_to_fp8
from bertbench.model.fp8_linear import scaled_product
from bertbench.model.fp8_scaling import E4M3, E5M2
from bertbench.model.gelu import gelu, gelu_gradient
from bertbench.model.linear import widens
from bertbench.model.sequences import Sequences
from bertbench.model.shape import SHAPES, BertShape
from bertbench.optim.build_optimizer import build_optimizer
from lab.bench.batches import wikipedia_batches
from lab.bench.gpu.device_state import clocks_and_power
from lab.bench.gpu.marks import mark, milliseconds_between
from lab.bench.gpu.testbed import TINY, Row, Unfit, attempt, print_row

_SEED = 1
_RATE = 1e-4
_UPDATE_BYTES = 7 * 4.0  # of a parameter: weight, gradient and two moments in, all but the gradient out


class RateSizes(NamedTuple):
    """The sizes of the kernels."""

    device: torch.device
    shape: BertShape
    tokens: int
    lengths: list[int]
    """The lengths of the sequences that attention reads, longest first."""
    copied: int
    """The bytes of the tensor that is copied."""
    repeats: int
    """The number of launches between two events."""
    seconds: float
    """The least time in which a kernel is launched again and again."""

    @property
    def width(self) -> int:
        """Return the width of hidden states."""
        return self.shape.hidden_size

    @property
    def inner(self) -> int:
        """Return the width inside the feed-forward part."""
        return self.shape.feed_forward_size


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
        return RateSizes(torch.device("cuda"), SHAPES["large"], 24_576, lengths, 1 << 30, 20, 0.5)
    return RateSizes(torch.device("cpu"), TINY, 96, [32, 13, 7], 1 << 12, 2, 0.0)


def rates() -> None:
    """Print the state of the GPU, and the rate of each kernel that fp8 doesn't need."""
    sizes = sizes_here()
    _print_state("before")
    _print_rates(kernels(sizes), sizes)
    _print_state("after")


def rates_in_8_bits() -> None:
    """Print the rate of each product and cast in fp8."""
    sizes = sizes_here()
    _print_rates(kernels_in_8_bits(sizes), sizes)


def kernels(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield the kernels without fp8, each with its operations and with the bytes that it has to move."""
    elements = sizes.tokens * sizes.inner
    yield Kernel("copy", partial(_copy, sizes), moved=2.0 * sizes.copied)
    yield from _products(sizes)
    yield from _attentions(sizes)
    yield Kernel("GELU", partial(_gelu, sizes), moved=2 * 2.0 * elements)
    yield Kernel("GELU's gradient", partial(_gelu_gradient, sizes), moved=3 * 2.0 * elements)
    yield _lamb(sizes)


def kernels_in_8_bits(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield products in fp8, with fast and with slow sums, and what casts to fp8."""
    elements = sizes.tokens * sizes.inner
    weights = sizes.width * sizes.inner
    cast = 2.0  # bytes of an element in fp8, plain and transposed
    yield from _products_in_8_bits(sizes)
    yield Kernel("GELU in fp8", partial(_gelu_to_fp8, sizes), moved=(2.0 + cast) * elements)
    yield Kernel("GELU's gradient in fp8", partial(_gelu_gradient_to_fp8, sizes), moved=(2 * 2.0 + cast) * elements)
    yield Kernel("cast of a weight to fp8", partial(_cast_of_weight, sizes), moved=(4.0 + cast) * weights)
    yield Kernel("cast of a gradient to fp8", partial(_cast_of_gradient, sizes), moved=(2.0 + cast) * elements)
    yield Kernel("transposition in fp8", partial(_transposition, sizes), moved=cast * elements)


def rate_of(kernel: Kernel, sizes: RateSizes) -> Row:
    """Return the median time of a kernel, and its rates."""
    launch = kernel.build()
    for _ in range(2):  # the first launch compiles, or chooses an algorithm
        launch()
    times: list[float] = []
    spent_ms = 0.0
    while not times or spent_ms < 1e3 * sizes.seconds:
        begun = mark(sizes.device)
        for _ in range(sizes.repeats):
            launch()
        ended = mark(sizes.device)
        wait_for_device(sizes.device)
        round_ms = milliseconds_between(begun, ended)
        times.append(round_ms / sizes.repeats)
        spent_ms += round_ms
    ms = statistics.median(times)
    row: Row = {"kernel": kernel.name, "ms": round(ms, 5)}
    if kernel.flops:
        row["tflops"] = round(kernel.flops / ms / 1e9, 3)
    if kernel.moved:
        row["gb_per_s"] = round(kernel.moved / ms / 1e6, 3)
    return row | {"holds": True}


def _print_rates(timed: Iterator[Kernel], sizes: RateSizes) -> None:
    for kernel in timed:
        attempt(kernel.name, partial(_print_rate, kernel, sizes))


def _print_rate(kernel: Kernel, sizes: RateSizes) -> None:
    print_row(rate_of(kernel, sizes))


def _print_state(when: str) -> None:
    try:
        print_row(clocks_and_power(when))
    except Unfit as reason:
        print_row({"what": "state", "not_reached": str(reason)})


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


def _products_in_8_bits(sizes: RateSizes) -> Iterator[Kernel]:
    """Yield the same products in fp8: gradients in e5m2, everything else in e4m3, the right operand by columns."""
    wide = torch.float32  # of a weight's gradient
    for layer, (features_in, features_out) in _layers(sizes).items():
        shape = sizes.tokens, features_in, features_out
        yield from _with_both_sums(f"{layer} forward", sizes, shape, E4M3)
        shape = sizes.tokens, features_out, features_in
        yield from _with_both_sums(f"{layer} to input", sizes, shape, E5M2)
        shape = features_out, sizes.tokens, features_in
        yield from _with_both_sums(f"{layer} to weight, fp32 written", sizes, shape, E5M2, wide)


def _with_both_sums(
    name: str,
    sizes: RateSizes,
    shape: tuple[int, int, int],
    left_format: torch.dtype,
    written: torch.dtype = torch.bfloat16,
) -> Iterator[Kernel]:
    """Yield a product of matrices [N, K] and [K, M], with fast sums as in a step, and with exact ones."""
    rows, inner, columns = shape
    flops = 2.0 * rows * inner * columns
    for sums, multiply in (("fast", scaled_product), ("slow", _product_with_slow_sums)):
        build = partial(_in_8_bits, sizes.device, shape, left_format, written, multiply)
        yield Kernel(f"fp8 {name}, {sums} sums", build, flops)


def _in_8_bits(
    device: torch.device,
    shape: tuple[int, int, int],
    left_format: torch.dtype,
    written: torch.dtype,
    multiply: Callable[..., Tensor],
) -> Callable[[], object]:
    rows, inner, columns = shape
    left_NK = torch.randn(rows, inner, device=device).to(left_format)
    right_MK = torch.randn(columns, inner, device=device).to(E4M3)
    scale = torch.ones((), device=device)
    return lambda: multiply(left_NK, right_MK.T, scale, scale, dtype=written)


def _product_with_slow_sums(
    left_NK: Tensor, right_KM: Tensor, left_inverse: Tensor, right_inverse: Tensor, dtype: torch.dtype
) -> Tensor:
    return torch._scaled_mm(left_NK, right_KM, scale_a=left_inverse, scale_b=right_inverse, out_dtype=dtype)


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
    heads = sizes.shape.attention_heads
    head_width = sizes.width // heads
    qkv_T3HK = _drawn(sizes, sum(sizes.lengths), 3, heads, head_width).requires_grad_(backward)
    gradient_THK = _drawn(sizes, sum(sizes.lengths), heads, head_width)
    if not backward:
        return lambda: attention(qkv_T3HK, on_device, dropout)
    return lambda: torch.autograd.grad(attention(qkv_T3HK, on_device, dropout), qkv_T3HK, gradient_THK)


def _copy(sizes: RateSizes) -> Callable[[], object]:
    source = torch.ones(sizes.copied, dtype=torch.int8, device=sizes.device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _gelu(sizes: RateSizes) -> Callable[[], object]:
    product_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    bias_F = torch.zeros(sizes.inner, device=sizes.device)
    return lambda: gelu(product_TF, bias_F)


def _gelu_gradient(sizes: RateSizes) -> Callable[[], object]:
    gradient_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    product_TF = _drawn(sizes, sizes.tokens, sizes.inner)
    bias_F = torch.zeros(sizes.inner, device=sizes.device)
    return lambda: gelu_gradient(gradient_TF, product_TF, bias_F)


def _lamb(sizes: RateSizes) -> Kernel:
    with torch.device("meta"):
        model = Bert(sizes.shape)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Kernel("LAMB", partial(_update, sizes, model), moved=_UPDATE_BYTES * parameters)


def _update(sizes: RateSizes, empty: Bert) -> Callable[[], object]:
    """Return LAMB's step, by the implementation that a run on this device takes."""
    model = empty.to_empty(device=sizes.device)
    for parameter in model.parameters():
        parameter.detach().normal_(0.0, 0.02)
        parameter.grad = torch.full_like(parameter, 1e-3)
    impl: Implementation = "triton" if sizes.device.type == "cuda" else "torch"
    lamb, _ = build_optimizer(model, OptimizerSettings(name="lamb", learning_rate=_RATE, impl=impl))
    return partial(lamb.step, _RATE)


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
