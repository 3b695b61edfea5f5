"""Bounds of rounding that follow from the arithmetic, so that they hold for every processor and library.

A sum of n products, in whatever order and with or without fused multiply-adds, errs by at most n u / (1 - n u) times
the sum of the products' magnitudes, where u is half the distance from 1 to the next number of the format that adds up
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1). Formats of 16 bits are added up in
float32, where products of theirs are exact, and the result is rounded once more into the format that it is kept in.
"""

import torch
from torch import Tensor

EXACT = torch.zeros((), dtype=torch.float64)


def unit(dtype: torch.dtype) -> float:
    """Return the largest relative error of one rounding into the format."""
    return torch.finfo(dtype).eps / 2


def gamma(roundings: int, dtype: torch.dtype = torch.float32) -> float:
    """Return the largest relative error of as many roundings, one after the other."""
    return roundings * unit(dtype) / (1 - roundings * unit(dtype))


def product_bound(
    left: Tensor,
    right: Tensor,
    kept_in: torch.dtype,
    left_off: Tensor = EXACT,
    summed_in: torch.dtype = torch.float32,
) -> Tensor:
    """Return how far left @ right, kept in `kept_in`, may be off where `left` itself is off by up to `left_off`."""
    left_off = left_off.to(left.device)
    magnitude = (left.abs() + left_off) @ right.abs()
    summed = gamma(left.shape[-1], summed_in) * magnitude + left_off.expand_as(left) @ right.abs()
    return summed + unit(kept_in) * ((left @ right).abs() + summed)


def assert_product(found: Tensor, left: Tensor, right: Tensor, added: Tensor, kept_in: torch.dtype) -> None:
    """Assert that `found`, rounded into `kept_in`, is left @ right + added, all three of which are exact."""
    # a sum is one more product, with 1
    left = torch.cat((left, torch.ones(len(left), 1)), 1).double()
    right = torch.cat((right, added.expand(1, right.shape[1])), 0).double()
    assert found.shape == (left @ right).shape
    assert bool(((found - left @ right).abs() <= product_bound(left, right, kept_in)).all())
