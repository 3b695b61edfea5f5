"""Assemble the encoder's matrices for Muon from the ranks' slices of the buckets.

    this rank's segments of the gradients' sum --all-to-all--> whole gradients of the matrices dealt to this rank
    their updates, whose state is on this rank alone        --all-to-all--> updates of the segments

A rank sends and receives its slice's share of these matrices; with more than a few ranks that is little beside a step's
reduce-scatter and all-gather.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, distributed, nn

from bertbench.gradients.buckets import Buckets
from bertbench.gradients.slices import LogicalSlices
from bertbench.model.logical_tensors import LogicalTensors


class DistributedMatrices(LogicalTensors):
    """Logical matrices in slices of buckets, each matrix dealt to a rank."""

    def __init__(self, buckets: Buckets, parameters: Sequence[nn.Parameter], fused: Mapping[Tensor, int]) -> None:
        """Deal the matrices. Collective."""
        super().__init__(parameters, fused)
        self._whole = self.weights
        ranks, rank, owners = range(buckets.slices), distributed.get_rank(), deal(self.shapes, buckets.slices)
        self._dealt = [number for number, owner in enumerate(owners) if owner == rank]
        self._slices = slices = LogicalSlices(buckets, parameters, fused)
        numbers = slices.numbers
        # segments in the order of sending: by owner, then by matrix
        self._order = sorted(range(len(numbers)), key=lambda at: (owners[numbers[at]], numbers[at]))
        self.weights = [slices.weights[at] for at in self._order]
        held = torch.zeros(len(owners), dtype=torch.int64, device=parameters[0].device)
        for number, weight in zip(numbers, slices.weights, strict=True):
            held[number] = weight.numel()
        gathered = held.new_empty(buckets.slices, len(held))
        distributed.all_gather(list(gathered), held)
        table = gathered.tolist()
        self._sent = [sum(table[rank][at] for at, owner in enumerate(owners) if owner == peer) for peer in ranks]
        self._received = [[row[number] for number in self._dealt] for row in table]
        self.shapes = [self.shapes[number] for number in self._dealt]
        self._nothing = parameters[0].new_empty(0)

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the matrices dealt to this rank. Collective."""
        gradients = self._slices.gradients()
        lengths = [sum(row) for row in self._received]
        arrived = self._exchange([gradients[at] for at in self._order], self._sent, lengths).split(lengths)
        pieces = [flat.split(row) for flat, row in zip(arrived, self._received, strict=True)]
        return [torch.cat(parts).view(shape) for *parts, shape in zip(*pieces, self.shapes, strict=True)]

    def spread(self, updates: Sequence[Tensor]) -> list[Tensor]:
        """Return the updates of `weights`. Collective."""
        lengths = zip(*self._received, strict=True)
        pieces = [update.reshape(-1).split(row) for update, row in zip(updates, lengths, strict=True)]
        leaving = [own[peer] for peer in range(len(self._received)) for own in pieces]
        back = self._exchange(leaving, [sum(row) for row in self._received], self._sent)
        return list(back.split([weight.numel() for weight in self.weights]))

    def by_name(self, names: Mapping[Tensor, str], flat: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return tensors that match the matrices dealt to this rank, under their names."""
        every = list(super().by_name(names, self._whole))
        return dict(zip((every[number] for number in self._dealt), flat, strict=True))

    def _exchange(self, leaving: Sequence[Tensor], sent: list[int], received: list[int]) -> Tensor:
        flat = torch.cat([self._nothing, *leaving])  # torch.cat takes no empty list
        arriving = flat.new_empty(sum(received))
        distributed.all_to_all_single(arriving, flat, received, sent)
        return arriving


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
