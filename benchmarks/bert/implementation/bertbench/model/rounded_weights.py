"""Keep 16-bit copies of the weights that compiled products read, so that no pass of the model casts them.

A cast reads 4 bytes and writes 2 bytes for each parameter. Without copies, every forward pass would cast: each
accumulation part of a step, and each evaluation. With copies, the optimizer in Triton writes them from registers (2
bytes for each parameter); after other optimizers, one cast a step updates them (`ModelWeights` in
gradients/buckets.py).
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from bertbench.model.bert import Bert
from bertbench.model.linear import Linear


class RoundedWeights:
    """The copies of some layers' weights, which each layer holds as `rounded`; the weights must not move in memory."""

    def __init__(self, layers: Iterable[Linear], dtype: torch.dtype) -> None:
        self.copies: dict[Tensor, Tensor] = {}
        """The copy of each parameter."""
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
