"""Compute the encoder's matrix products in fp8, by torchao, which is optional.

Each tensor of activations, weights or gradients is scaled by its largest value to fp8's range (Micikevicius et al.,
arXiv 2209.05433). Weights stay fp32 in memory; all other operations compute in bf16.
"""

import logging
from functools import partial

import torch

from bertbench.common.errors import ConfigError
from bertbench.model.bert import Bert

MULTIPLE = 16
"""Every dimension of an fp8 product is a multiple of this; loading/filler.py rounds the number of tokens."""


_WHILE_LOADING = {"torchao": "Failed to load", "torch.utils._pytree": "is an Enum subclass"}
"""Warnings logged while torchao 0.16 loads: about kernels that this build lacks and nothing here calls, and about a
deprecated call of its own."""


def encoder_in_fp8(model: Bert, device: torch.device) -> None:
    """Swap the encoder's linear layers for fp8 ones, which keep their parameters; a CPU emulates the products.

    Raises ConfigError if torchao is missing, the GPU lacks fp8, or a size is not a multiple of 16.
    """
    sizes = (model.shape.hidden_size, model.shape.feed_forward_size)
    if any(size % MULTIPLE for size in sizes):
        raise ConfigError(
            f"precision.compute fp8: hidden and feed-forward size {sizes[0]} and {sizes[1]} must be multiples of "
            f"{MULTIPLE}; use bf16"
        )
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        raise ConfigError(
            f"precision.compute fp8: {torch.cuda.get_device_name(device)} has no fp8 products, an H100 or newer does; "
            "use bf16"
        )
    for name, known in _WHILE_LOADING.items():
        logging.getLogger(name).addFilter(partial(_is_news, known))
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: PLC0415 - optional
    except ImportError:
        raise ConfigError(
            "precision.compute fp8 needs torchao, which is not installed; install bertbench[fp8], or use bf16"
        ) from None
    convert_to_float8_training(model.layers, config=Float8LinearConfig(emulate=device.type == "cpu"))


def _is_news(known: str, record: logging.LogRecord) -> bool:
    return known not in record.getMessage()
