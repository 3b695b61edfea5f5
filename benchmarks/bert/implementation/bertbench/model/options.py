"""How a model may compute; without torch, so that configuration can know it."""

from typing import Literal

PrecisionName = Literal["auto", "fp32", "bf16", "fp16", "fp8"]
"""The format of matrix products and activations; fp8 is for the encoder's products, all else is then bf16.

`auto` is fp32 or bf16, as a run measures (training/arithmetic.py); what runs nothing counts it as fp32.
"""

ProductsName = Literal["auto", "torch", "onednn"]
"""The library of a CPU's matrix products: what a run measures to be faster, product by product, or always one."""

ResidualName = Literal["fp32", "bf16"]
"""The format in which a layer hands its output to the next."""

CompileMode = Literal["none", "default", "reduce-overhead", "graphs"]
"""Modes of torch.compile; `reduce-overhead` also replays CUDA graphs, one a piece and size of batch, `graphs` one for
the whole iteration and each of a few sizes (training/graph_trainer.py)."""


SIZE_STEP = 16
"""What sizes of batches that few sizes are wanted of are multiples of; fp8 products need it too."""

LEAST_WIDTH = 256
"""Hidden size from which on a CPU's products are worth code for their size (model/products.py)."""


def default_mode(device_type: str) -> CompileMode:
    """Where compiling pays: on a CPU the matrix products leave too little to fuse."""
    return "default" if device_type == "cuda" else "none"


def wants_few_sizes(device_type: str, precision: PrecisionName, mode: CompileMode, hidden_size: int) -> bool:
    """Whether something makes code for the sizes it meets, so that batches had better have few (loading/filler.py).

    That is torch.compile, fp8 products, and oneDNN on a CPU, which does half precision and wide layers.
    """
    by_onednn = device_type == "cpu" and (precision != "fp32" or hidden_size >= LEAST_WIDTH)
    return mode != "none" or precision == "fp8" or by_onednn
