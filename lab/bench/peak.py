"""Measure a machine's peak: the rate of its matrix products, and the memory of a piece of work."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from bertbench.model.linear import onednn_multiplies
from bertbench.model.shape import BertShape
from lab.bench.harness import milliseconds

_SIZES = (1024, 2048)
_LARGE_ON_GPU = 8192
_ONEDNN = "oneDNN"
_CLEAR_PEAK = "5"  # proc(5), /proc/pid/clear_refs: resets the peak of the resident set


class Product(NamedTuple):
    """A kind of matrix product, [rows, inner] by [inner, columns]."""

    rows: int
    inner: int
    columns: int
    times: int = 1
    """Number of times a model computes it in a forward pass."""

    @property
    def flops(self) -> float:
        """Return the floating-point operations of one."""
        return 2.0 * self.rows * self.inner * self.columns


def layer_products(shape: BertShape, tokens: int, masked: int) -> list[Product]:
    """Return the products of a forward pass: all layers on `tokens` tokens, the masked-LM head on `masked`.

    Attention's products are left out, because their sizes depend on sequences.
    """
    width, inner = shape.hidden_size, shape.feed_forward_size
    return [
        *(
            Product(tokens, *sizes, shape.layers)
            for sizes in ((width, 3 * width), (width, width), (width, inner), (inner, width))
        ),
        Product(masked, width, width),
        Product(masked, width, shape.vocab_size),
    ]


class MatrixProducts:
    """Track the best rates of products so far, by number format; call it repeatedly between measurements.

    On a CPU torch has two libraries: the one behind `@` (MKL for float32) and oneDNN. Which is faster depends on the
    machine and on the shape.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sizes = (*_SIZES, _LARGE_ON_GPU) if device.type == "cuda" else _SIZES
        self.rates: dict[tuple[torch.dtype, Product], dict[str, float]] = {}
        """Floating-point operations a second of each product, by library."""

    @property
    def flops(self) -> dict[torch.dtype, float]:
        """Return the floating-point operations a second of the fastest square, by the faster library.

        Only large squares count: small products run from cache, at 189 GFLOP/s on a Xeon whose large ones run at 110.
        """
        best: dict[torch.dtype, float] = {}
        for (dtype, product), rates in self.rates.items():
            if product.rows == product.inner == product.columns:
                best[dtype] = max(best.get(dtype, 0.0), *rates.values())
        return best

    def together(self, dtype: torch.dtype, products: list[Product]) -> float:
        """Return the floating-point operations a second of a model's products, each by its faster library."""
        seconds = sum(product.times * product.flops / max(self.rates[dtype, product].values()) for product in products)
        return sum(product.times * product.flops for product in products) / seconds

    def try_again(self, dtype: torch.dtype) -> None:
        """Multiply squares of each size once more."""
        self.try_products(dtype, [Product(size, size, size) for size in self._sizes])

    def try_products(self, dtype: torch.dtype, products: list[Product]) -> None:
        """Multiply each of these shapes once more."""
        for product in products:
            left = torch.randn(product.rows, product.inner, device=self._device).to(dtype)
            weight = torch.randn(product.columns, product.inner, device=self._device).to(dtype)
            rates = self.rates.setdefault((dtype, product), {})
            for library, multiply in _LIBRARIES.items():
                if library == _ONEDNN and not (self._device.type == "cpu" and onednn_multiplies(dtype)):
                    continue
                seconds = milliseconds(partial(multiply, left, weight), self._device) / 1e3
                rates[library] = max(product.flops / seconds, rates.get(library, 0.0))


def _by_onednn(left: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, weight, None, "none", [], "")
    return product


_LIBRARIES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "torch": lambda left, weight: left @ weight.T,
    _ONEDNN: _by_onednn,
}


def reset_peak(device: torch.device) -> None:
    """Reset `peak_bytes`."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def peak_bytes(device: torch.device) -> int:
    """Return the peak memory since `reset_peak`: of this process on a CPU, of its tensors on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
