"""Orthogonalise matrices by Newton-Schulz iterations, with matrix products only: the direction of a Muon step.

Shapes: B matrices of one shape, M rows, N columns.
"""

import torch
from torch import Tensor

# Keller Jordan's quintic (kellerjordan.github.io/posts/muon): the steepest slope at 0 that leaves singular values
# between about 0.7 and 1.2, instead of convergence to 1, which training doesn't need.
_LINEAR, _CUBIC, _QUINTIC = 3.4445, -4.7750, 2.0315
_SMALLEST_NORM = 1e-7
# Most elements of each of a batch's four intermediate matrices: without this limit BERT-Large's would take 2 GB.
_ELEMENTS = 2**24


def orthogonalize(matrices_BMN: Tensor, steps: int, number_format: torch.dtype) -> Tensor:
    """Return matrices with the same singular vectors and singular values near 1; zero stays zero.

    Products and the result are in `number_format`. Source: Jordan et al. 2024 (Muon).
    """
    batch, rows, columns = matrices_BMN.shape
    result_BMN = torch.empty((batch, rows, columns), dtype=number_format, device=matrices_BMN.device)
    at_once = max(1, _ELEMENTS // (rows * columns))
    for part, result in zip(matrices_BMN.split(at_once), result_BMN.split(at_once), strict=True):
        wide = part.to(number_format)
        if rows > columns:  # the shorter side has the smaller Gram matrix
            wide = wide.mT
        wide = wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp(min=_SMALLEST_NORM)
        for _ in range(steps):
            gram = wide @ wide.mT
            polynomial = torch.baddbmm(gram, gram, gram, beta=_CUBIC, alpha=_QUINTIC)
            wide = torch.baddbmm(wide, polynomial, wide, beta=_LINEAR)
        result.copy_(wide.mT if rows > columns else wide)
    return result_BMN
