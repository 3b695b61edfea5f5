"""Keep weights and gradients in flat buckets; every rank owns a slice of each.

One collective moves one bucket. Its tensors follow the order in which the backward pass computes their gradients, each
aligned to 16 elements, a cache line: a GPU loads 16 bytes at a time, and torch.compile copies unaligned tensors. Zeros
fill the gaps and the end, so that all slices are equally long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import distributed, nn

from bertbench.optim.collectives import slice_of
from bertbench.optim.traffic import bucket_limits

_ALIGNMENT = 16  # elements


def starts_of(sizes: Sequence[int]) -> list[int]:
    """Return the offsets of tensors of these sizes in their bucket, followed by the bucket's end."""
    return list(accumulate((_aligned(size) for size in sizes), initial=0))


def slice_length(sizes: Sequence[int], ranks: int) -> int:
    """Return the elements of every rank's slice of a bucket of such tensors, padding included."""
    return _aligned(-(-starts_of(sizes)[-1] // ranks))


def owned(sizes: Sequence[int], ranks: int, place: int) -> int:
    """Return how many elements of its tensors are in a bucket's slice at `place`, without padding."""
    length = slice_length(sizes, ranks)
    begin, stop = place * length, (place + 1) * length
    spans = zip(starts_of(sizes), sizes, strict=False)
    return sum(max(min(start + size, stop) - max(start, begin), 0) for start, size in spans)


def _aligned(elements: int) -> int:
    return -(-elements // _ALIGNMENT) * _ALIGNMENT


def ready_order(model: nn.Module, backward: Callable[[], None]) -> list[nn.Parameter]:
    """Return rank 0's `backward_order` on every rank. Collective.

    All ranks need one order, or their collectives could mismatch.
    """
    order = backward_order(model, backward)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    places = {parameter: place for place, parameter in enumerate(parameters)}
    agreed = torch.tensor([places[parameter] for parameter in order], device=parameters[0].device)
    distributed.broadcast(agreed, 0)
    return [parameters[place] for place in agreed.tolist()]


def backward_order(model: nn.Module, backward: Callable[[], None]) -> list[nn.Parameter]:
    """Return the trained parameters in the order in which `backward` computes their gradients, which are discarded."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    order: list[nn.Parameter] = []
    hooks = [parameter.register_post_accumulate_grad_hook(order.append) for parameter in parameters]
    backward()
    for hook in hooks:
        hook.remove()
    model.zero_grad(set_to_none=True)
    assert len(order) == len(parameters), "every trained parameter takes part in every step"
    return order


def bucket_table(parameters: Sequence[nn.Parameter], bucket_mb: float | None) -> list[list[nn.Parameter]]:
    """Return the parameters of each bucket, grouped as DDP would into buckets of `bucket_mb` MiB."""
    table, _ = distributed._compute_bucket_assignment_by_size(list(parameters), bucket_limits(bucket_mb))
    return [[parameters[place] for place in places] for places in table]


@dataclass(frozen=True)
class Bucket:
    """Parameters that one collective moves; `weights` and `gradients` are flat and divide into equal slices."""

    parameters: tuple[nn.Parameter, ...]
    starts: tuple[int, ...]
    """Where each parameter begins."""
    elements: int
    """Elements of the parameters, without padding."""
    weights: torch.Tensor
    gradients: torch.Tensor


class Buckets:
    """All trained parameters of a model in flat memory; this rank owns the slice at `place`.

    Weights and gradients stay in this memory: zero gradients in place, never set them to None.
    """

    def __init__(self, table: Sequence[Sequence[nn.Parameter]], ranks: int, place: int) -> None:
        self.ranks, self.place = ranks, place
        sizes = [[parameter.numel() for parameter in parameters] for parameters in table]
        lengths = [ranks * slice_length(bucket, ranks) for bucket in sizes]
        first = table[0][0]
        self.weights, self.gradients = (torch.zeros(sum(lengths), device=first.device) for _ in range(2))
        """The weights of all buckets, one after the other."""
        self.buckets = tuple(
            Bucket(tuple(parameters), tuple(starts_of(bucket)[:-1]), sum(bucket), weights, gradients)
            for parameters, bucket, weights, gradients in zip(
                table, sizes, self.weights.split(lengths), self.gradients.split(lengths), strict=True
            )
        )
        for bucket in self.buckets:
            _move_in(bucket)
        distributed.broadcast(self.weights, 0)  # like DDP: all ranks start with rank 0's weights

    def own(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return this rank's slice of a bucket's weights or gradients, on the same memory."""
        return slice_of(buffer, self.place, self.ranks)


@torch.no_grad()
def _move_in(bucket: Bucket) -> None:
    for parameter, start in zip(bucket.parameters, bucket.starts, strict=True):
        weight, gradient = (
            buffer.narrow(0, start, parameter.numel()).view(parameter.shape)
            for buffer in (bucket.weights, bucket.gradients)
        )
        weight.copy_(parameter)
        parameter.data, parameter.grad = weight, gradient
