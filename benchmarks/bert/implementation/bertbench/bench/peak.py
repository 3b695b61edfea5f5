"""What a machine could do at best: the rate of its matrix products, and the memory that work takes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from bertbench.model.shape import BertShape

_SIZES = (1024, 2048)
_LARGE_ON_GPU = 8192
_ONEDNN = "oneDNN"
_CLEAR_PEAK = "5"  # proc(5), /proc/pid/clear_refs: the peak of the resident set begins anew


class Product(NamedTuple):
    """A kind of matrix product, [rows, inner] by [inner, columns]."""

    rows: int
    inner: int
    columns: int
    times: int = 1
    """How often a model computes it in a forward pass."""

    @property
    def flops(self) -> float:
        """Floating-point operations of one."""
        return 2.0 * self.rows * self.inner * self.columns


def layer_products(shape: BertShape, tokens: int, masked: int) -> list[Product]:
    """Products of a forward pass through all layers, for so many tokens, and the masked-LM head, for the masked ones.

    Attention's own are left out: their sizes are those of sequences.
    """
    width, inner = shape.hidden_size, shape.feed_forward_size
    return [
        Product(tokens, width, 3 * width, shape.layers),
        Product(tokens, width, width, shape.layers),
        Product(tokens, width, inner, shape.layers),
        Product(tokens, inner, width, shape.layers),
        Product(masked, width, width),
        Product(masked, width, shape.vocab_size),
    ]


class MatrixProducts:
    """The best rates of products seen so far, per number format; call it now and then between measurements.

    On a CPU torch has two libraries: what `@` takes, for float32 MKL, and oneDNN. Which is faster depends on the
    machine and on the shape.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sizes = (*_SIZES, _LARGE_ON_GPU) if device.type == "cuda" else _SIZES
        self.rates: dict[tuple[torch.dtype, Product], dict[str, float]] = {}
        """Floating-point operations a second of each product, by library."""

    @property
    def flops(self) -> dict[torch.dtype, float]:
        """Floating-point operations a second of the fastest square, by the faster library.

        Not of any product: small ones run from the cache, at 189 GFLOP/s on a Xeon whose large ones run at 110.
        """
        best: dict[torch.dtype, float] = {}
        for (dtype, product), rates in self.rates.items():
            if product.rows == product.inner == product.columns:
                best[dtype] = max(best.get(dtype, 0.0), *rates.values())
        return best

    def together(self, dtype: torch.dtype, products: list[Product]) -> float:
        """Floating-point operations a second of a model's products, each by its faster library."""
        seconds = sum(product.times * product.flops / max(self.rates[dtype, product].values()) for product in products)
        return sum(product.times * product.flops for product in products) / seconds

    def try_again(self, dtype: torch.dtype) -> None:
        """Multiply squares once more, in each size."""
        self.try_products(dtype, [Product(size, size, size) for size in self._sizes])

    def try_products(self, dtype: torch.dtype, products: list[Product]) -> None:
        """Multiply once more in each of these shapes."""
        for product in products:
            left = torch.randn(product.rows, product.inner, device=self._device).to(dtype)
            weight = torch.randn(product.columns, product.inner, device=self._device).to(dtype)
            rates = self.rates.setdefault((dtype, product), {})
            for library, multiply in _LIBRARIES.items():
                if library == _ONEDNN and not (self._device.type == "cpu" and _onednn_multiplies(dtype)):
                    continue
                wait(self._device)
                began = time.perf_counter()
                multiply(left, weight)
                wait(self._device)
                rate = product.flops / (time.perf_counter() - began)
                rates[library] = max(rate, rates.get(library, 0.0))


def _onednn_multiplies(dtype: torch.dtype) -> bool:
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    # without AVX-512 it raises RuntimeError for bfloat16
    return dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _by_onednn(left: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, weight, None, "none", [], "")
    return product


_LIBRARIES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "torch": lambda left, weight: left @ weight.T,
    _ONEDNN: _by_onednn,
}


def reset_peak(device: torch.device) -> None:
    """Let `peak_bytes` begin anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def peak_bytes(device: torch.device) -> int:
    """The most memory since then: of this process on a CPU, of its tensors on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def wait(device: torch.device) -> None:
    """Until the device has done everything it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
