"""Compute how small a gradient becomes by top-k with coded positions, by a threshold, and by int8 with coded values.

Only sizes are computed; nothing is sent. The gradient consists of normal numbers, as in the task of `lab exchange`.
The techniques topk and int8 send 32-bit positions, and values without coding (docs/techniques.md).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

VALUE_BITS = 32
_PLACE_BITS = 32
_LARGEST = 127
_BLOCK = 512
"""Elements that share a scale, as in the technique int8."""


@dataclass(frozen=True)
class Size:
    """The size of a gradient in one form."""

    form: str
    elements_sent: int
    bytes: int
    of_fp32: float


def sizes(gradient: Tensor, share: float, threshold: float) -> list[Size]:
    """Return the sizes of a gradient: its largest `share`, elements above `threshold` root mean squares, and int8."""
    count = round(share * len(gradient))
    places = gradient.abs().topk(count).indices.sort().values
    above = gradient.abs() > threshold * gradient.square().mean().sqrt()
    placed_bits = VALUE_BITS + _PLACE_BITS
    levels = int8_levels(gradient)
    scales_bits = VALUE_BITS * math.ceil(len(gradient) / _BLOCK)
    bits_of_form = {
        "fp32": (len(gradient), VALUE_BITS * len(gradient)),
        f"top-k {share:.0%}": (count, placed_bits * count),
        f"top-k {share:.0%}, positions coded": (count, VALUE_BITS * count + rice_bits(places)),
        f"above {threshold:g} rms": (int(above.sum()), placed_bits * int(above.sum())),
        "int8": (len(gradient), 8 * len(gradient) + scales_bits),
        "int8, values coded": (len(gradient), math.ceil(entropy_bits(levels)) + scales_bits),
    }
    rows = []
    for form, (elements, bits) in bits_of_form.items():
        rows.append(Size(form, elements, math.ceil(bits / 8), round(bits / VALUE_BITS / len(gradient), 4)))
    return rows


def rice_bits(places: Tensor) -> int:
    """Return the bits of increasing positions as a Rice code of the gaps between them, with the best parameter.

    A gap g >= 0 takes g >> parameter bits in unary, one bit that ends them, and `parameter` bits.
    """
    gaps = torch.diff(places, prepend=places.new_tensor([-1])) - 1
    return min(int((gaps >> parameter).sum()) + (1 + parameter) * len(gaps) for parameter in range(32))


def int8_levels(gradient: Tensor) -> Tensor:
    """Return the elements, rounded to multiples of 1 / 127 of the largest in their block."""
    levels = []
    for block in gradient.split(_BLOCK):
        largest = block.abs().max().clamp_min(torch.finfo(block.dtype).tiny)
        levels.append((block / largest * _LARGEST).round().to(torch.int8))
    return torch.cat(levels)


def entropy_bits(levels: Tensor) -> float:
    """Return the bits that an ideal entropy code needs (Shannon), without its table."""
    counts = levels.unique(return_counts=True)[1].double()
    return float(-(counts * (counts / counts.sum()).log2()).sum())
