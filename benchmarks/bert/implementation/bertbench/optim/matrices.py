"""Run Muon on whole matrices although each rank holds only its slices of the buckets (gradients/slices.py).

Each matrix of the encoder has an owner: the rank that computes its update and keeps its momentum. A segment consists of
those elements of a matrix that lie in one rank's slice. Two all-to-alls move segments:

    gradients         rank 0's slice holds A0, rank 1's slice holds A1 and B1
       | gradients()  each segment goes to the owner of its matrix
    whole gradients   rank 0 owns A = A0 A1, rank 1 owns B = B1
       | Muon         each owner computes the updates of its matrices
    whole updates
       | spread()     each segment of an update returns to the rank whose slice it lies in
    updates           rank 0 updates A0, rank 1 updates A1 and B1

A rank sends and receives its slice's share of these matrices. With more than a few ranks, this is little compared with
the reduce-scatter and all-gather of a step.
Shapes: R ranks, M matrices, O of them owned by this rank.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, distributed, nn

from bertbench.gradients.buckets import Buckets
from bertbench.gradients.slices import LogicalSlices
from bertbench.model.logical_tensors import LogicalTensors


class DistributedMatrices(LogicalTensors):
    """Logical matrices in slices of buckets; `gradients` and `shapes` hold owned matrices, `weights` holds segments."""

    def __init__(self, buckets: Buckets, parameters: Sequence[nn.Parameter], fused: Mapping[Tensor, int]) -> None:
        """Assign an owner to each matrix, and find out which rank holds which elements. Collective."""
        super().__init__(parameters, fused)
        rank = distributed.get_rank()
        owners_M = assign_owners(self.shapes, buckets.slices)
        self._owned = [number for number, owner in enumerate(owners_M) if owner == rank]
        self._all_weights = self.weights
        self._slices = LogicalSlices(buckets, parameters, fused)
        numbers = self._slices.numbers

        def owner_then_number(segment: int) -> tuple[int, int]:
            number = numbers[segment]
            return owners_M[number], number

        self._sending_order = sorted(range(len(numbers)), key=owner_then_number)
        """Indices of this rank's segments in `_slices`."""
        self.weights = [self._slices.weights[segment] for segment in self._sending_order]

        elements_RM = _elements_by_rank(self._slices, buckets.slices, len(owners_M), parameters[0].device)
        self._sent_R = [0] * buckets.slices
        """How many elements of gradients this rank sends to each rank; it gets back as many elements of updates."""
        for owner, elements in zip(owners_M, elements_RM[rank], strict=True):
            self._sent_R[owner] += elements
        self._received_RO = []
        for elements_M in elements_RM:
            self._received_RO.append([elements_M[number] for number in self._owned])
        """How many elements of each owned matrix this rank receives from each rank."""
        self._received_R = [sum(elements_O) for elements_O in self._received_RO]
        self.shapes = [self.shapes[number] for number in self._owned]
        self._empty = parameters[0].new_empty(0)

    def gradients(self) -> list[Tensor]:
        """Return the whole gradients of the owned matrices. Collective."""
        segments = self._slices.gradients()
        leaving = [segments[segment] for segment in self._sending_order]
        arrived = self._exchange(leaving, self._sent_R, self._received_R)
        segments_RO = [
            from_rank.split(elements_O)
            for from_rank, elements_O in zip(arrived.split(self._received_R), self._received_RO, strict=True)
        ]
        # slices are in the order of the ranks, and so are a matrix's segments
        return [
            torch.cat(segments_R).view(shape)
            for shape, segments_R in zip(self.shapes, zip(*segments_RO, strict=True), strict=True)
        ]

    def spread(self, updates: Sequence[Tensor]) -> list[Tensor]:
        """Return the updates of `weights`, given the updates of the owned matrices. Collective."""
        elements_OR = zip(*self._received_RO, strict=True)
        segments_OR = [
            update.reshape(-1).split(elements_R) for update, elements_R in zip(updates, elements_OR, strict=True)
        ]
        leaving = []
        for rank in range(len(self._received_RO)):
            leaving += [segments_R[rank] for segments_R in segments_OR]
        arrived = self._exchange(leaving, self._received_R, self._sent_R)
        return list(arrived.split([weight.numel() for weight in self.weights]))

    def by_name(self, names: Mapping[Tensor, str], flat: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return tensors that match the owned matrices, under their names."""
        all_names = list(super().by_name(names, self._all_weights))
        owned_names = [all_names[number] for number in self._owned]
        return dict(zip(owned_names, flat, strict=True))

    def _exchange(self, leaving: Sequence[Tensor], sent_R: list[int], received_R: list[int]) -> Tensor:
        """Send `sent_R` elements of the tensors to each rank; return the `received_R` elements that each rank sent."""
        flat = torch.cat([self._empty, *leaving])  # torch.cat doesn't accept an empty list
        arrived = flat.new_empty(sum(received_R))
        distributed.all_to_all_single(arrived, flat, received_R, sent_R)
        return arrived


def _elements_by_rank(slices: LogicalSlices, ranks: int, matrices: int, device: torch.device) -> list[list[int]]:
    """Return how many elements of each matrix each rank's slices hold: [R, M]. Collective."""
    elements_M = torch.zeros(matrices, dtype=torch.int64, device=device)
    for number, weight in zip(slices.numbers, slices.weights, strict=True):
        elements_M[number] = weight.numel()
    elements_RM = elements_M.new_empty(ranks, matrices)
    distributed.all_gather(list(elements_RM), elements_M)
    return elements_RM.tolist()


def assign_owners(shapes: Sequence[Sequence[int]], ranks: int) -> list[int]:
    """Return the owner of each matrix.

    The matrices are assigned in the order of their cost, the highest first, each to the rank with the least work so
    far. The cost of a matrix [M, N] is M N min(M, N), the cost of a product with its smaller Gram matrix.
    """
    costs = [shape[0] * shape[1] * min(shape) for shape in shapes]
    work_R = [0] * ranks
    owners = [0] * len(shapes)
    for number in sorted(range(len(shapes)), key=lambda number: -costs[number]):
        owner = work_R.index(min(work_R))
        owners[number] = owner
        work_R[owner] += costs[number]
    return owners
