"""Hold this process's part of a tensor in the form that torch's distributed checkpoint saves and loads.

Consecutive elements of a matrix are a partial row, whole rows, and a partial row: up to three rectangles.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import Tensor

if TYPE_CHECKING:  # importing it takes 0.4 s; the methods that need it run when it has been imported
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
    from torch.distributed.checkpoint.planner import WriteItem

_ATEN = torch.ops.aten


class Rectangle(NamedTuple):
    """A part of a tensor of one or two dimensions, as a view of a piece of the flat tensor."""

    offsets: tuple[int, ...]
    tensor: Tensor


def rectangles(shape: Sequence[int], start: int, flat: Tensor) -> Iterator[Rectangle]:
    """Yield rectangles of a tensor of `shape` as views of `flat`, which has its elements from `start` on."""
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


class SlicedTensor(Tensor):
    """The rectangles of a tensor that this process holds; torch's distributed checkpoint saves and loads them.

    It has a shape but no memory of its own. The three methods are torch's protocol for such tensors.
    """

    rectangles: list[Rectangle]

    @staticmethod
    def __new__(cls: type[Self], shape: Sequence[int], rectangles: list[Rectangle]) -> Self:
        """Hold the rectangles of a tensor of `shape`; there must be at least one."""
        held = Tensor._make_wrapper_subclass(cls, torch.Size(shape), dtype=rectangles[0].tensor.dtype)
        held.rectangles = rectangles
        return held

    def __init__(self, *_: Any) -> None:
        """Do nothing: `__new__` has set all attributes."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # torch declares what it has there as a plain function
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Copy the tensor rectangle by rectangle, as torch does before it writes; other operations raise."""
        del types
        held, *others = args
        if func is _ATEN.copy_.default:
            for rectangle, source in zip(held.rectangles, others[0].rectangles, strict=True):
                rectangle.tensor.copy_(source.tensor)
            return held
        if func in (_ATEN.detach.default, _ATEN.zeros_like.default):
            keywords = kwargs or {}
            copies = [Rectangle(rectangle.offsets, func(rectangle.tensor, **keywords)) for rectangle in held.rectangles]
            return cls(held.size(), copies)
        raise NotImplementedError(f"{func} of a tensor that is spread over ranks")

    def __create_write_items__(self, name: str, _: object) -> "list[WriteItem]":
        """Return the items that a snapshot writes."""
        from torch.distributed.checkpoint import metadata, planner  # noqa: PLC0415

        return [
            planner.WriteItem(
                metadata.MetadataIndex(name, chunk.offsets),
                planner.WriteItemType.SHARD,
                tensor_data=planner.TensorWriteData(chunk, metadata.TensorProperties(dtype=self.dtype), self.size()),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> "list[ChunkStorageMetadata]":
        """Return the offsets and sizes of this process's rectangles."""
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata  # noqa: PLC0415

        return [ChunkStorageMetadata(torch.Size(offsets), tensor.size()) for offsets, tensor in self.rectangles]

    def __get_tensor_shard__(self, index: "MetadataIndex") -> Tensor:
        """Return the rectangle at an offset."""
        return next(tensor for offsets, tensor in self.rectangles if torch.Size(offsets) == index.offset)
