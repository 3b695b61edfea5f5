"""Find the segments of each logical tensor that a rank's slices of the buckets hold; its optimizer updates them.

Snapshots store moments with the names and shapes of whole tensors, so they fit any number of ranks. A segment of a
matrix is a partial row, whole rows, and a partial row: up to three rectangles, the form that torch's distributed
checkpoint needs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from bertbench.optim.buckets import Buckets
from bertbench.optim.state import LogicalTensors, logical

_ATEN = torch.ops.aten


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


class Rectangle(NamedTuple):
    """A part of a tensor of one or two dimensions, as a view of a segment."""

    offsets: tuple[int, ...]
    tensor: torch.Tensor


def rectangles(shape: Sequence[int], start: int, flat: torch.Tensor) -> Iterator[Rectangle]:
    """Yield views of `flat`, the elements from `start` on of a tensor of `shape`, as rectangles of that tensor."""
    if len(shape) == 1:
        yield Rectangle((start,), flat)
        return
    _, columns = shape
    place, stop = start, start + flat.numel()
    while place < stop:
        row, column = divmod(place, columns)
        rows = (stop - place) // columns if column == 0 else 0
        end = place + rows * columns if rows else min(stop, (row + 1) * columns)
        yield Rectangle((row, column), flat[place - start : end - start].view(max(rows, 1), -1))
        place = end


class SlicedTensor(torch.Tensor):
    """The rectangles of a tensor that this process holds; torch's distributed checkpoint saves and loads them.

    It has a shape but no memory of its own. The three methods are torch's protocol for such tensors.
    """

    rectangles: list[Rectangle]

    @staticmethod
    def __new__(cls: type[Self], shape: Sequence[int], rectangles: list[Rectangle]) -> Self:
        """Hold the rectangles of a tensor of `shape`; there must be at least one."""
        held = torch.Tensor._make_wrapper_subclass(cls, torch.Size(shape), dtype=rectangles[0].tensor.dtype)
        held.rectangles = rectangles
        return held

    def __init__(self, *_: Any) -> None:
        """Do nothing: `__new__` has set all attributes."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # torch declares what it has there as a plain function
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Copy it rectangle by rectangle, which torch does before it writes; other operations raise."""
        del types
        held, *others = args
        if func is _ATEN.copy_.default:
            for own, other in zip(held.rectangles, others[0].rectangles, strict=True):
                own.tensor.copy_(other.tensor)
            return held
        if func in (_ATEN.detach.default, _ATEN.zeros_like.default):
            copies = [Rectangle(own.offsets, func(own.tensor, **(kwargs or {}))) for own in held.rectangles]
            return cls(held.size(), copies)
        raise NotImplementedError(f"{func} of a tensor that is spread over ranks")

    def __create_write_items__(self, name: str, _: object) -> list[WriteItem]:
        """Return the items that a snapshot writes."""
        return [
            WriteItem(
                MetadataIndex(name, chunk.offsets),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, TensorProperties(dtype=self.dtype), self.size()),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        """Return the offsets and sizes of this process's rectangles."""
        return [ChunkStorageMetadata(torch.Size(offsets), tensor.size()) for offsets, tensor in self.rectangles]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        """Return the rectangle at an offset."""
        return next(tensor for offsets, tensor in self.rectangles if torch.Size(offsets) == index.offset)
