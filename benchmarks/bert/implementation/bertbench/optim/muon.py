"""Muon's rule: orthogonalise the momentum of a matrix's gradient (Jordan et al. 2024).

    momentum = mu momentum + (1 - mu) g        direction = (1 - mu) g + mu momentum, or momentum without Nesterov
    update   = 0.2 sqrt(max(rows, columns)) orthogonalize(direction)

The factor gives updates AdamW's root mean square, 0.2, so that both use one learning rate and weight decay (Liu et al.
2025, Muon is Scalable for LLM Training, section 2.2).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bertbench.optim.matrices import ByShape, Kept
from bertbench.optim.newton_schulz import orthogonalize
from bertbench.optim.options import MuonOptions
from bertbench.optim.state import Scalar

_ADAMW_RMS = 0.2


class MuonRule:
    """Compute Muon's updates of whole matrices and keep their momentum; matrices of one shape form one batch."""

    text = "Muon by batched products on the encoder's matrices"

    def __init__(
        self, shapes: Sequence[torch.Size], device: torch.device, options: MuonOptions, product: torch.dtype
    ) -> None:
        """Compute products in the format `product`."""
        self._options, self._product = options, product
        self._groups = ByShape(shapes)
        self._momenta = self._groups.zeros(device)

    def updates(self, gradients: Sequence[Tensor], taken: Tensor | None, steps: Scalar) -> list[Tensor]:
        """See `matrices.MatrixRule`."""
        del steps
        options, updates = self._options, []
        share: Scalar = 1 - options.momentum
        for gradients_BMN, momenta_BMN in zip(self._groups.stacked(gradients), self._momenta, strict=True):
            momenta_BMN.lerp_(gradients_BMN, share if taken is None else share * taken)
            directions_BMN = gradients_BMN.lerp_(momenta_BMN, options.momentum) if options.nesterov else momenta_BMN
            orthogonal_BMN = orthogonalize(directions_BMN, options.ns_steps, self._product).float()
            updates.append(orthogonal_BMN.mul_(_ADAMW_RMS * math.sqrt(max(orthogonal_BMN.shape[1:]))))
        return self._groups.apart(updates)

    def kept(self) -> Kept:
        """See `matrices.MatrixRule`."""
        return {"momentum": self._groups.apart(self._momenta)}
