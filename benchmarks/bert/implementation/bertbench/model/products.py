"""Measure which library is fastest for each product of each linear layer of a model."""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bertbench.model.bert import Bert, MaskedLmHead
from bertbench.model.linear import (
    BY_TORCH,
    Library,
    Linear,
    Products,
    forward_product,
    input_product,
    onednn_multiplies,
    weight_product,
)
from bertbench.model.options import LEAST_WIDTH, SIZE_STEP
from bertbench.model.shape import BertShape

_LIBRARIES: tuple[Library, ...] = ("torch", "onednn")
_FOR_WEIGHTS: tuple[Library, ...] = (*_LIBRARIES, "copied")
_ROUNDS = 2
# Tokens of a measurement, by bytes per number; more tokens take longer and lead to the same ranking
_TOKENS = {2: 2048, 4: 1024}
_MASKED = 7  # the head reads one token in 7
_CLEARLY = 0.97  # a library must need at most this share of torch's time; smaller differences are noise

Agree = Callable[[Tensor], Tensor]
"""Sums a tensor over all ranks."""

Shape = tuple[int, int]
"""A linear layer's output features and input features."""


def layer_shapes(shape: BertShape, dtype: torch.dtype) -> list[Shape]:
    """Return the shapes of layers that are worth a measurement; none if oneDNN can't multiply this format."""
    hidden, expanded = shape.hidden_size, shape.feed_forward_size
    if not onednn_multiplies(dtype) or hidden < LEAST_WIDTH:
        return []
    layers = {(3 * hidden, hidden), (hidden, hidden), (expanded, hidden), (hidden, expanded)}
    return sorted(layers | {(shape.vocab_size, hidden)})


def measure(rows: dict[Shape, int], dtype: torch.dtype) -> Tensor:
    """Return seconds in float64, [shapes, 3 products, 3 libraries]: the best of two rounds after a warm-up.

    `rows` holds the rows of each shape's products, which are rounded up to a static size. The time is infinite where a
    library can't compute a product.
    """
    seconds = torch.full((len(rows), 3, len(_FOR_WEIGHTS)), torch.inf, dtype=torch.float64)
    for place, ((outputs, inputs), least) in enumerate(rows.items()):
        count = -(-least // SIZE_STEP) * SIZE_STEP
        input_NI = torch.randn((count, inputs), dtype=torch.float32).to(dtype)
        weight_OI = torch.randn((outputs, inputs), dtype=torch.float32).to(dtype)
        gradient_NO = torch.randn((count, outputs), dtype=torch.float32).to(dtype)
        bias_O = torch.randn((outputs,), dtype=torch.float32).to(dtype)
        _measure_product(partial(forward_product, input_NI, weight_OI, bias_O), _LIBRARIES, seconds[place, 0])
        _measure_product(partial(input_product, gradient_NO, weight_OI), _LIBRARIES, seconds[place, 1])
        _measure_product(partial(weight_product, gradient_NO, input_NI), _FOR_WEIGHTS, seconds[place, 2])
    return seconds


def _measure_product(multiply: Callable[[Library], Tensor], libraries: tuple[Library, ...], seconds: Tensor) -> None:
    """Fill in the seconds that each library takes for one product: [libraries]."""
    for number in range(1 + _ROUNDS):
        for place, library in enumerate(libraries):
            began = time.perf_counter()
            multiply(library)
            if number:
                seconds[place] = min(float(seconds[place]), time.perf_counter() - began)


def fastest(seconds: Tensor) -> list[Products]:
    """Return the fastest library for each product: torch's, unless another one is clearly faster."""
    weighed = torch.cat((_CLEARLY * seconds[..., :1], seconds[..., 1:]), -1)
    chosen = []
    for forward, to_input, to_weight in weighed.argmin(-1).tolist():
        chosen.append(Products(_FOR_WEIGHTS[forward], _FOR_WEIGHTS[to_input], _FOR_WEIGHTS[to_weight]))
    return chosen


def fastest_products(shape: BertShape, tokens: int, dtype: torch.dtype, agree: Agree) -> dict[Shape, Products]:
    """Return the fastest library for each product of each layer, measured on at most `tokens` tokens."""
    tokens = min(tokens, _TOKENS[dtype.itemsize])
    masked = max(1, tokens // _MASKED)
    rows = {layer: masked if layer[0] == shape.vocab_size else tokens for layer in layer_shapes(shape, dtype)}
    if not rows:
        return {}
    return dict(zip(rows, fastest(agree(measure(rows, dtype))), strict=True))


def set_products(model: Bert, chosen: dict[Shape, Products]) -> None:
    """Set each layer's libraries to those chosen for its shape, or to torch's if none were chosen."""
    for module in model.modules():
        if isinstance(module, Linear | MaskedLmHead):
            layer = model.embeddings.word if isinstance(module, MaskedLmHead) else module
            module.products = chosen.get((layer.weight.shape[0], layer.weight.shape[1]), BY_TORCH)
