"""Keep 16-bit copies of the weights that compiled products read, so that no pass of the model casts them.

A cast reads 4 bytes a parameter and writes 2, in every forward pass: of an accumulated step's parts, of evaluations.
What writes the weights also writes the copies: Triton's optimizer writes them from registers (2 bytes a
parameter), other optimizers are followed by one cast a step (gradients/buckets.py's `ModelWeights`).
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from bertbench.model.bert import Bert
from bertbench.model.linear import Linear


class RoundedWeights:
    """The copies of some layers' weights, which the layers hold as `rounded`; the weights must not move in memory."""

    def __init__(self, layers: Iterable[Linear], dtype: torch.dtype) -> None:
        self.copies: dict[Tensor, Tensor] = {}
        """By parameter."""
        for layer in layers:
            layer.rounded = torch.empty_like(layer.weight, dtype=dtype, requires_grad=False)
            self.copies[layer.weight] = layer.rounded
        self._weights = [weight.detach() for weight in self.copies]
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Round all weights again."""
        torch._foreach_copy_(list(self.copies.values()), self._weights)


def rounded_layers(model: Bert) -> Iterator[Linear]:
    """Yield the layers whose compiled products read copies: the encoder's, 90 % of BERT-Large's parameters."""
    for layer in model.encoder_layers():
        for module in layer.modules():
            if isinstance(module, Linear):
                yield module
