"""Find the segments of each logical tensor that a rank's slices of the buckets hold; its optimizer updates them.

Snapshots store moments with the names and shapes of whole tensors, so they fit any number of ranks.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import nn

from bertbench.distributed.sliced_tensor import SlicedTensor, rectangles
from bertbench.optim.buckets import Buckets
from bertbench.optim.state import LogicalTensors, logical


class Segment(NamedTuple):
    """A run of elements of one logical tensor."""

    parameter: nn.Parameter
    parts: int
    """Number of logical tensors of the parameter."""
    part: int
    """Index of this one among them."""
    start: int
    """Place of the first element in the flat logical tensor."""
    weight: torch.Tensor
    gradient: torch.Tensor


class LogicalSlices(LogicalTensors):
    """This rank's segments of some parameters.

    `fused` gives the number of logical tensors that a parameter stacks along its first dimension, if more than one.
    """

    def __init__(self, buckets: Buckets, parameters: Sequence[nn.Parameter], fused: Mapping[torch.Tensor, int]) -> None:
        parts = {parameter: fused.get(parameter, 1) for parameter in parameters}
        firsts = dict(zip(parts, accumulate(parts.values(), initial=0), strict=False))
        self._segments = list(_segments(buckets, parts))
        self.weights = [segment.weight for segment in self._segments]
        self.tensors = sum(parts.values())
        """Number of logical tensors of all the parameters, over all ranks."""
        self.numbers = [firsts[segment.parameter] + segment.part for segment in self._segments]
        """Index of each segment's logical tensor; each occurs once."""

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients of `weights`, as views of the buckets."""
        return [segment.gradient for segment in self._segments]

    def named(self, names: Mapping[torch.Tensor, str], flat: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return tensors that match `weights`, each as this rank's part of a tensor of the logical one's size."""
        named: dict[str, torch.Tensor] = {}
        for segment, tensor in zip(self._segments, flat, strict=True):
            wholes = logical(names[segment.parameter], segment.parameter.detach(), segment.parts)
            name, whole = list(wholes.items())[segment.part]
            named[name] = SlicedTensor(whole.shape, list(rectangles(whole.shape, segment.start, tensor)))
        return named


def _segments(buckets: Buckets, parts: Mapping[nn.Parameter, int]) -> Iterator[Segment]:
    for bucket, whole in zip(buckets.all, buckets.weights, strict=True):
        weights, gradients = buckets.own(whole), buckets.own(bucket.gradients)
        begin = buckets.place * weights.numel()
        for parameter, place in zip(bucket.parameters, bucket.starts, strict=True):
            count = parts.get(parameter, 1)
            length = parameter.numel() // count
            for part, start in enumerate(range(place, place + parameter.numel(), length)):
                first, stop = max(start, begin), min(start + length, begin + weights.numel())
                if first < stop and parameter in parts:
                    weight, gradient = (flat[first - begin : stop - begin] for flat in (weights, gradients))
                    yield Segment(parameter, count, part, first - start, weight, gradient)
