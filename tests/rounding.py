"""Bounds of rounding that follow from the arithmetic, so that they hold for every processor and library.

A sum of n products, in whatever order and with or without fused multiply-adds, errs by at most n u / (1 - n u) times
the sum of the products' magnitudes, where u is half the distance from 1 to the next number of the format that adds up
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 3.1). Formats of 16 bits are added up in
float32, where products of theirs are exact, and the result is rounded once more into the format that it is kept in.
"""

import torch


def unit(dtype: torch.dtype) -> float:
    """Return the largest relative error of one rounding into the format."""
    return torch.finfo(dtype).eps / 2


def gamma(roundings: int, dtype: torch.dtype = torch.float32) -> float:
    """Return the largest relative error of as many roundings, one after the other."""
    return roundings * unit(dtype) / (1 - roundings * unit(dtype))


def assert_product(
    found: torch.Tensor, left: torch.Tensor, right: torch.Tensor, added: torch.Tensor, kept_in: torch.dtype
) -> None:
    """Assert that `found`, rounded into `kept_in`, is left @ right + added, all three of which are exact."""
    left, right, added = left.double(), right.double(), added.double()
    exact = left @ right + added
    summed = gamma(left.shape[-1] + 1) * (left.abs() @ right.abs() + added.abs())
    assert found.shape == exact.shape
    assert bool(((found - exact).abs() <= summed + unit(kept_in) * (exact.abs() + summed)).all())
