"""Assemble whole matrices from slices: one rank receives each matrix, updates it and sends the update back.

    this rank's segments of the gradients' sum --all-to-all--> whole gradients of the matrices dealt to this rank
    their updates, whose state is on this rank alone        --all-to-all--> updates of the segments

A rank sends and receives its slice's share of these matrices; with more than a few ranks that is little beside a step's
reduce-scatter and all-gather.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, distributed, nn

from bertbench.optim.buckets import Buckets
from bertbench.optim.slices import LogicalSlices
from bertbench.optim.state import logical_shapes, logical_tensors


class DealtMatrices:
    """Logical matrices in slices of buckets, each dealt to a rank; `matrices.WholeMatrices` is the unsliced version."""

    def __init__(self, buckets: Buckets, parameters: Sequence[nn.Parameter], fused: Mapping[Tensor, int]) -> None:
        """Deal the matrices. Collective."""
        self._slices = LogicalSlices(buckets, parameters, fused)
        self.weights = self._slices.weights
        self._parameters, self._fused = parameters, fused
        shapes = logical_shapes(parameters, fused)
        owners = deal(shapes, buckets.ranks)
        rank = distributed.get_rank()
        self._dealt = [number for number, owner in enumerate(owners) if owner == rank]
        self.shapes = [shapes[number] for number in self._dealt]
        # segments in the order of sending: by owner, then by matrix
        numbers = self._slices.numbers
        self._order = sorted(range(len(numbers)), key=lambda place: (owners[numbers[place]], numbers[place]))
        held = torch.zeros(len(shapes) + 1, dtype=torch.int64, device=buckets.weights.device)
        for number, weight in zip(numbers, self.weights, strict=True):
            held[number] = weight.numel()
        held[-1] = buckets.place
        everybody = [torch.empty_like(held) for _ in range(buckets.ranks)]
        distributed.all_gather(everybody, held)
        table = [row.tolist() for row in everybody]
        self._sent = [0] * buckets.ranks
        for number, weight in zip(numbers, self.weights, strict=True):
            self._sent[owners[number]] += weight.numel()
        self._received = [[row[number] for number in self._dealt] for row in table]
        # a bucket orders slices by place, which differs from rank order with several ranks a node
        self._by_place = sorted(range(buckets.ranks), key=lambda peer: table[peer][-1])

    def gradients(self) -> list[Tensor]:
        """Return the gradients of `weights`."""
        return self._slices.gradients()

    def collect(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of the matrices dealt to this rank. Collective."""
        received = self._exchanged(
            [gradients[place] for place in self._order], self._sent, [sum(lengths) for lengths in self._received]
        )
        pieces = [
            flat.split(lengths)
            for flat, lengths in zip(
                received.split([sum(lengths) for lengths in self._received]), self._received, strict=True
            )
        ]
        return [
            torch.cat([pieces[peer][place] for peer in self._by_place]).view(shape)
            for place, shape in enumerate(self.shapes)
        ]

    def spread(self, updates: Sequence[Tensor]) -> list[Tensor]:
        """Return the updates of `weights`. Collective."""
        cut = [
            update.reshape(-1).split([self._received[peer][place] for peer in self._by_place])
            for place, update in enumerate(updates)
        ]
        position = {peer: place for place, peer in enumerate(self._by_place)}
        leaving = [pieces[position[peer]] for peer in range(len(position)) for pieces in cut]
        back = self._exchanged(leaving, [sum(lengths) for lengths in self._received], self._sent)
        mine: list[Tensor] = [back] * len(self.weights)
        lengths = [self.weights[place].numel() for place in self._order]
        for place, update in zip(self._order, back.split(lengths), strict=True):
            mine[place] = update
        return mine

    def named(self, names: Mapping[Tensor, str], matrices: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return tensors that match `shapes`, under names derived from the parameters'."""
        labels = list(logical_tensors(names, self._parameters, self._fused))
        return {labels[number]: matrix for number, matrix in zip(self._dealt, matrices, strict=True)}

    def _exchanged(self, leaving: Sequence[Tensor], sent: list[int], received: list[int]) -> Tensor:
        flat = torch.cat(list(leaving)) if leaving else self._nothing()
        arriving = flat.new_empty(sum(received))
        distributed.all_to_all_single(arriving, flat, received, sent)
        return arriving

    def _nothing(self) -> Tensor:
        return torch.empty(0, device=self._parameters[0].device)


def deal(shapes: Sequence[Sequence[int]], ranks: int) -> list[int]:
    """Return the rank of each matrix: deal the costliest first, each to the rank with the least work so far.

    The cost of a matrix [M, N] is M N min(M, N), the cost of a product with its smaller Gram matrix.
    """
    costs = [shape[0] * shape[1] * min(shape) for shape in shapes]
    work, owners = [0] * ranks, [0] * len(shapes)
    for number in sorted(range(len(shapes)), key=lambda number: -costs[number]):
        owner = work.index(min(work))
        owners[number] = owner
        work[owner] += costs[number]
    return owners
