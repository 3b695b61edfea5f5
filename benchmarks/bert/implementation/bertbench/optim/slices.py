"""Find the segments of each logical tensor that a rank's slices of the buckets hold; its optimizer updates them.

Snapshots store moments with the names and shapes of whole tensors, so they fit any number of ranks.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import torch
from torch import nn

from bertbench.distributed.sliced_tensor import SlicedTensor, rectangles
from bertbench.optim.buckets import Bucket, Buckets
from bertbench.optim.state import LogicalTensors, logical


class LogicalSlices(LogicalTensors):
    """This rank's segments of some parameters.

    `fused` gives the number of logical tensors that a parameter stacks along its first dimension, if more than one.
    """

    def __init__(self, buckets: Buckets, parameters: Sequence[nn.Parameter], fused: Mapping[torch.Tensor, int]) -> None:
        self._counts = {parameter: fused.get(parameter, 1) for parameter in parameters}
        self.tensors = sum(self._counts.values())
        """Number of logical tensors of all the parameters, over all ranks."""
        firsts = dict(zip(self._counts, accumulate(self._counts.values(), initial=0), strict=False))
        self.weights, self._gradients = [], []
        self._places: list[tuple[nn.Parameter, int, int]] = []
        """Of each segment the parameter, the part of it, and the first element in the flat logical tensor."""
        for bucket, whole in zip(buckets.all, buckets.weights, strict=True):
            weights, gradients = buckets.own(whole), buckets.own(bucket.gradients)
            begin = buckets.place * weights.numel()
            for parameter, start, stop, part in self._logical_spans(bucket):
                first, last = max(start, begin), min(stop, begin + weights.numel())
                if first < last:
                    self.weights.append(weights[first - begin : last - begin])
                    self._gradients.append(gradients[first - begin : last - begin])
                    self._places.append((parameter, part, first - start))
        self.numbers = [firsts[parameter] + part for parameter, part, _ in self._places]
        """Index of each segment's logical tensor; each occurs once."""

    def _logical_spans(self, bucket: Bucket) -> Iterator[tuple[nn.Parameter, int, int, int]]:
        """Yield the parameter, first and last place in the bucket, and part of each logical tensor."""
        for parameter, place in zip(bucket.parameters, bucket.starts, strict=True):
            parts = self._counts.get(parameter, 0)
            for part in range(parts):
                length = parameter.numel() // parts
                yield parameter, place + part * length, place + (part + 1) * length, part

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients of `weights`, as views of the buckets."""
        return list(self._gradients)

    def named(self, names: Mapping[torch.Tensor, str], flat: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return tensors that match `weights`, each as this rank's part of a tensor of the logical one's size."""
        named: dict[str, torch.Tensor] = {}
        for (parameter, part, start), tensor in zip(self._places, flat, strict=True):
            wholes = logical(names[parameter], parameter.detach(), self._counts[parameter])
            name, whole = list(wholes.items())[part]
            named[name] = SlicedTensor(whole.shape, list(rectangles(whole.shape, start, tensor)))
        return named
