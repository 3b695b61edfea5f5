"""Pass hidden states from layer to layer before LayerNorm's weight and bias.

Shapes: T tokens, R tokens that are read, D hidden size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Normalised(NamedTuple):
    """Hidden states as normalised * scale + shift.

    In the backward pass, the gradient of `normalised_TD` stands for the gradient of the hidden states.
    """

    normalised_TD: torch.Tensor
    scale_D: torch.Tensor
    shift_D: torch.Tensor

    def index_select(self, dim: int, read_R: torch.Tensor) -> Normalised:
        """Return the hidden states of these tokens, as a tensor's `index_select` does."""
        return self._replace(normalised_TD=self.normalised_TD.index_select(dim, read_R))
