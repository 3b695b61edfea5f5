"""What a rank's slices of the buckets hold of each logical tensor: the segments that its optimizer updates.

Snapshots keep moments under the names and in the shapes of whole tensors, so that they fit any number of ranks. A
segment of a matrix is a piece of a row, rows, and a piece of a row: up to three rectangles, as torch's distributed
checkpoint wants them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from bertbench.optim.buckets import Buckets
from bertbench.optim.state import logical

_ATEN = torch.ops.aten


class Segment(NamedTuple):
    """A run of elements of one logical tensor."""

    parameter: nn.Parameter
    parts: int
    """Logical tensors of the parameter."""
    part: int
    """Which of them this is."""
    start: int
    """Place of the first element in the flat logical tensor."""
    weight: torch.Tensor
    gradient: torch.Tensor


class LogicalSlices:
    """This rank's segments of some parameters; the counterpart of `state.LogicalTensors`.

    `fused` says how many logical tensors a parameter holds along its first dimension, where it isn't one.
    """

    def __init__(self, buckets: Buckets, parameters: Sequence[nn.Parameter], fused: Mapping[torch.Tensor, int]) -> None:
        parts = {parameter: fused.get(parameter, 1) for parameter in parameters}
        firsts = dict(zip(parts, accumulate(parts.values(), initial=0), strict=False))
        self._segments = list(_segments(buckets, parts))
        self.weights = [segment.weight for segment in self._segments]
        self.tensors = sum(parts.values())
        """Logical tensors of all the parameters, on whichever rank."""
        self.numbers = [firsts[segment.parameter] + segment.part for segment in self._segments]
        """Which of them each segment belongs to; none comes twice."""

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients of `weights`, on the memory of the buckets."""
        return [segment.gradient for segment in self._segments]

    def named(self, names: Mapping[torch.Tensor, str], flat: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return tensors that go with `weights`, each as its rank's part of a tensor as large as the logical one."""
        named: dict[str, torch.Tensor] = {}
        for segment, tensor in zip(self._segments, flat, strict=True):
            wholes = logical(names[segment.parameter], segment.parameter.detach(), segment.parts)
            name, whole = list(wholes.items())[segment.part]
            named[name] = SlicedTensor(whole.shape, list(rectangles(whole.shape, segment.start, tensor)))
        return named


def _segments(buckets: Buckets, parts: Mapping[nn.Parameter, int]) -> Iterator[Segment]:
    for bucket in buckets.buckets:
        weights, gradients = buckets.own(bucket.weights), buckets.own(bucket.gradients)
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
    """A part of a tensor of one or two dimensions, on the memory of a segment."""

    offsets: tuple[int, ...]
    tensor: torch.Tensor


def rectangles(shape: Sequence[int], start: int, flat: torch.Tensor) -> Iterator[Rectangle]:
    """Yield the rectangles of a tensor of `shape` whose elements from `start` on are `flat`, as views of it."""
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
    """Some rectangles of a tensor, held by this process; torch's distributed checkpoint saves and fills those.

    It has a shape and no memory of its own. The three methods are torch's protocol for such tensors.
    """

    rectangles: list[Rectangle]

    @staticmethod
    def __new__(cls: type[Self], shape: Sequence[int], rectangles: list[Rectangle]) -> Self:
        """Hold the rectangles of a tensor of `shape`; there is at least one."""
        held = torch.Tensor._make_wrapper_subclass(cls, torch.Size(shape), dtype=rectangles[0].tensor.dtype)
        held.rectangles = rectangles
        return held

    def __init__(self, *_: Any) -> None:
        """Do nothing: `__new__` has done it all."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # torch declares what it has there as a plain function
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Copy it rectangle by rectangle, as torch does before it writes; nothing else can be done with it."""
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
        """Return what a snapshot writes."""
        return [
            WriteItem(
                MetadataIndex(name, chunk.offsets),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, TensorProperties(dtype=self.dtype), self.size()),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        """Return which rectangles are here."""
        return [ChunkStorageMetadata(torch.Size(offsets), tensor.size()) for offsets, tensor in self.rectangles]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        """Return the rectangle at an offset."""
        return next(tensor for offsets, tensor in self.rectangles if torch.Size(offsets) == index.offset)
