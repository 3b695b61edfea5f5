"""SOAP's rule: Adam in the eigenbasis of Shampoo's preconditioners (Vyas et al. 2024, algorithm 3).

    L, R = means of g g^T and g^T g        Q_L, Q_R = their eigenvectors, refreshed every few steps
    update = Q_L adam(Q_L^T m Q_R, second moments of Q_L^T g Q_R) Q_R^T

The first step only measures L and R. A side longer than `max_precondition_dim` uses the identity as its basis.
Shapes: B matrices of one shape, M rows, N columns; S is the length of one side.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bertbench.optim.matrices import ByShape, Kept
from bertbench.optim.options import AdamOptions, SoapOptions
from bertbench.optim.state import Scalar


class SoapRule:
    """Compute SOAP's updates of whole matrices; matrices of one shape form one batch."""

    text = "SOAP by batched products on the encoder's matrices"

    def __init__(
        self, shapes: Sequence[torch.Size], device: torch.device, adam: AdamOptions, options: SoapOptions
    ) -> None:
        self._groups = ByShape(shapes)
        self._batches = [_Batch(first_BMN, adam, options) for first_BMN in self._groups.zeros(device)]

    def updates(self, gradients: Sequence[Tensor], taken: Tensor | None, steps: Scalar) -> list[Tensor]:
        """See `matrices.MatrixRule`."""
        assert taken is None and not isinstance(steps, Tensor), "the configuration refuses a loss scale"
        stacked = self._groups.stacked(gradients)
        return self._groups.apart(
            [batch.update(gradient_BMN, int(steps)) for batch, gradient_BMN in zip(self._batches, stacked, strict=True)]
        )

    def kept(self) -> Kept:
        """See `matrices.MatrixRule`."""
        kinds = {
            "first": [batch.first_BMN for batch in self._batches],
            "second": [batch.second_BMN for batch in self._batches],
        }
        for number, side in enumerate(("rows", "columns")):
            kinds[side] = [batch.sides[number].mean_BSS for batch in self._batches]
            kinds[f"{side}_basis"] = [batch.sides[number].basis_BSS for batch in self._batches]
        return {kind: self._groups.apart(batches) for kind, batches in kinds.items()}


class _Batch:
    """Matrices of one shape with their state."""

    def __init__(self, zeros_BMN: Tensor, adam: AdamOptions, options: SoapOptions) -> None:
        self.first_BMN, self.second_BMN = zeros_BMN, torch.zeros_like(zeros_BMN)
        self._adam, self._every = adam, options.precondition_frequency
        self.sides = tuple(
            _Side(zeros_BMN, dimension, adam.beta2, options.max_precondition_dim) for dimension in (1, 2)
        )

    def update(self, gradient_BMN: Tensor, steps: int) -> Tensor:
        """Return the update of step `steps`, counted from 1; the first only measures."""
        adam, taken = self._adam, steps - 1
        update_BMN = torch.zeros_like(gradient_BMN)
        if taken:
            self.first_BMN.lerp_(gradient_BMN, 1 - adam.beta1)
            self.second_BMN.lerp_(self._rotated(gradient_BMN).square_(), 1 - adam.beta2)
            scale_BMN = (self.second_BMN / (1 - adam.beta2**taken)).sqrt_().add_(adam.epsilon)
            update_BMN = self._rotated(self.first_BMN) / scale_BMN / (1 - adam.beta1**taken)
            for side in self.sides:
                update_BMN = side.back(update_BMN)
        for side in self.sides:
            side.measure(gradient_BMN)
            if not taken:
                side.begin()
            elif taken % self._every == 0:
                self.second_BMN = side.refresh(self.second_BMN)
        return update_BMN

    def _rotated(self, matrices_BMN: Tensor) -> Tensor:
        for side in self.sides:
            matrices_BMN = side.rotated(matrices_BMN)
        return matrices_BMN


class _Side:
    """The rows or the columns of a batch of matrices: mean of their outer products, and its eigenbasis."""

    def __init__(self, like_BMN: Tensor, dimension: int, beta: float, longest: int) -> None:
        batch, size = like_BMN.shape[0], like_BMN.shape[dimension]
        self._dimension, self._beta = dimension, beta
        self._used = size <= longest
        size = size if self._used else 0
        self.mean_BSS, self.basis_BSS = (like_BMN.new_zeros(batch, size, size) for _ in range(2))

    def rotated(self, matrices_BMN: Tensor) -> Tensor:
        if not self._used:
            return matrices_BMN
        return self.basis_BSS.mT @ matrices_BMN if self._dimension == 1 else matrices_BMN @ self.basis_BSS

    def back(self, matrices_BMN: Tensor) -> Tensor:
        if not self._used:
            return matrices_BMN
        return self.basis_BSS @ matrices_BMN if self._dimension == 1 else matrices_BMN @ self.basis_BSS.mT

    def measure(self, gradient_BMN: Tensor) -> None:
        if self._used:
            side_first = gradient_BMN if self._dimension == 1 else gradient_BMN.mT
            self.mean_BSS.baddbmm_(side_first, side_first.mT, beta=self._beta, alpha=1 - self._beta)

    def begin(self) -> None:
        """Take the eigenvectors, largest eigenvalues first."""
        if self._used:
            self.basis_BSS.copy_(torch.linalg.eigh(self.mean_BSS).eigenvectors.flip(-1))

    def refresh(self, second_BMN: Tensor) -> Tensor:
        """Update the basis by a power iteration and a QR; return second moments in the new basis's order."""
        if not self._used:
            return second_BMN
        powered_BSS = self.mean_BSS @ self.basis_BSS
        order_BS = (self.basis_BSS * powered_BSS).sum(1).argsort(dim=1, descending=True)
        order_BMN = (order_BS[:, :, None] if self._dimension == 1 else order_BS[:, None, :]).expand_as(second_BMN)
        columns_BSS = order_BS[:, None, :].expand_as(powered_BSS)
        self.basis_BSS.copy_(torch.linalg.qr(powered_BSS.gather(2, columns_BSS)).Q)
        return second_BMN.copy_(second_BMN.gather(self._dimension, order_BMN))
