"""How a model may be told to compute; without torch, so that configuration can know it."""

from typing import Literal

PrecisionName = Literal["fp32", "bf16", "fp16", "fp8"]
"""The format of matrix products and activations; fp8 is for the encoder's products, all else is then bf16."""

CompileMode = Literal["none", "default", "reduce-overhead"]
"""Modes of torch.compile; `reduce-overhead` also replays CUDA graphs, one for each size of batch."""


def default_mode(device_type: str) -> CompileMode:
    """Where compiling pays: on a CPU the matrix products leave too little to fuse."""
    return "default" if device_type == "cuda" else "none"
