"""Sum compressed gradients and carry the compression error into the next step: int8 in blocks, and top-k.

With g_t a rank's gradient and e_t its error, a rank sends C(g_t + e_t) and keeps e_{t+1} = g_t + e_t - C(g_t + e_t)
(Seide et al. 2014; Karimireddy et al. 2019). An all-reduce can't add compressed numbers on the way, so it is replaced:

    int8     an all-to-all gives each rank its slice of all ranks' gradients; their sum, compressed again with its own
             error, goes to all ranks
    top-k    an all-gather gives all ranks each rank's largest elements with their places

The first exchange of a bucket overlaps the backward pass; `finish` does the rest in the buckets' order. Shapes: N
elements of a bucket, R ranks, L elements of a slice, B blocks of a slice.
"""

import math
from typing import Any

import torch
from torch import Tensor, distributed

from bertbench.config.optimizer import Communication
from bertbench.distributed.collectives import all_gather
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import GradientSum, Handed

_LARGEST = 127
_BLOCK = 512  # elements that share a scale in int8
_SCALE_BYTES = 4  # fp32
_PLACED_BYTES = 4 + 4  # fp32 and its place


class ErrorFeedback(GradientSum):
    """A compressed sum that carries what it left out: tensors by kind and bucket, zero at first."""

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        super().__init__(options, exchange)
        self._rank, self._ranks = distributed.get_rank(), distributed.get_world_size()
        self._carried: dict[tuple[str, int], Tensor] = {}
        self._begun: list[tuple[Bucket, Tensor, Any]] = []
        """Buckets, what they receive, and what waits for the first exchange."""

    def _error(self, kind: str, bucket: Bucket, elements: int) -> Tensor:
        if (kind, bucket.number) not in self._carried:
            self._carried[kind, bucket.number] = bucket.gradients.new_zeros(elements)
        return self._carried[kind, bucket.number]

    def _with_gradient(self, bucket: Bucket, elements: int, factor: Tensor | None) -> Tensor:
        """Return a bucket's error, of at least its elements, with `factor` times the gradient added."""
        error = self._error("error", bucket, elements)
        own = error[: bucket.gradients.numel()]
        own += bucket.gradients if factor is None else bucket.gradients * factor
        return error

    def reset(self) -> None:
        """See `GradientSum`."""
        for tensor in self._carried.values():
            tensor.zero_()

    def state(self) -> dict[str, Tensor]:
        """Return this rank's errors: of its gradients, and in int8 of its slices of the sums."""
        return {f"{kind}.{self._rank}.{number}": tensor for (kind, number), tensor in self._carried.items()}


class Int8Sum(ErrorFeedback):
    """Sum buckets as 8-bit integers, with one fp32 scale for each block of 512."""

    @staticmethod
    def bytes_per_step(handed: Handed) -> int:
        """See `GradientSum`: a byte an element and a scale a block, for each rank's slice."""
        slices = [int8_slice(elements, handed.ranks) for elements in handed.buckets]
        return handed.ranks * sum(length + _SCALE_BYTES * -(-length // _BLOCK) for length in slices)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """See `GradientSum`."""
        length = int8_slice(bucket.gradients.numel(), self._ranks)
        rows_RL = self._with_gradient(bucket, self._ranks * length, factor).view(self._ranks, length)
        message = encoded(rows_RL)
        rows_RL -= decoded(message, length)
        received = torch.empty_like(message)
        work = distributed.all_to_all_single(received.view(-1), message.view(-1), async_op=True)
        self._begun.append((bucket, received, work))

    def finish(self) -> None:
        """See `GradientSum`."""
        begun, self._begun = self._begun, []
        gathered = []
        for bucket, received, work in begun:
            work.wait()
            length = int8_slice(bucket.gradients.numel(), self._ranks)
            own = self._error("slice_error", bucket, length)
            own += decoded(received, length).sum(dim=0)
            message = encoded(own.view(1, -1))
            own -= decoded(message, length).reshape(-1)
            gathered.append(all_gather(received.view(-1), message.view(-1), async_op=True))
        for (bucket, received, _), work in zip(begun, gathered, strict=True):
            work.wait()
            elements = bucket.gradients.numel()
            bucket.gradients.copy_(decoded(received, int8_slice(elements, self._ranks)).reshape(-1)[:elements])


class TopKSum(ErrorFeedback):
    """Sum the largest `topk_share` of each rank's elements; the rest waits in the error until it is large enough."""

    @staticmethod
    def bytes_per_step(handed: Handed) -> int:
        """See `GradientSum`."""
        return _PLACED_BYTES * sum(topk_elements(elements, handed.options.topk_share) for elements in handed.buckets)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """See `GradientSum`."""
        elements = bucket.gradients.numel()
        error = self._with_gradient(bucket, elements, factor)
        places = error.abs().topk(topk_elements(elements, self._options.topk_share), sorted=False).indices
        message = torch.stack((places.int(), error[places].view(torch.int32)))
        error[places] = 0
        received = message.new_empty(self._ranks, *message.shape)
        work = all_gather(received.view(-1), message.view(-1), async_op=True)
        self._begun.append((bucket, received, work))

    def finish(self) -> None:
        """See `GradientSum`."""
        begun, self._begun = self._begun, []
        for bucket, received, work in begun:
            work.wait()
            bucket.gradients.zero_()
            for places, values in received:  # rank after rank: every rank adds in the same order
                bucket.gradients.index_add_(0, places, values.view(bucket.gradients.dtype))


def int8_slice(elements: int, ranks: int) -> int:
    """Return the elements of each rank's slice of a bucket, which int8 sums there."""
    return -(-elements // ranks)


def topk_elements(elements: int, share: float) -> int:
    """Return how many elements of a bucket top-k sends: at least one."""
    return max(1, math.ceil(share * elements))


def encoded(rows_RL: Tensor) -> Tensor:
    """Return rows as bytes [R, L + 4 B]: a signed byte an element, then an fp32 scale a block.

    A block's largest element becomes 127 or -127. A non-finite element makes its block's scale non-finite, and the
    block NaN.
    """
    rows, length = rows_RL.shape
    blocks_RBn = torch.nn.functional.pad(rows_RL, (0, -length % _BLOCK)).view(rows, -1, _BLOCK)
    scales_RB = blocks_RBn.abs().amax(dim=-1) / _LARGEST
    codes_RBn = (blocks_RBn / scales_RB.clamp_min(torch.finfo(scales_RB.dtype).tiny).unsqueeze(-1)).round_()
    codes_RL = codes_RBn.to(torch.int8).view(rows, -1)[:, :length]
    return torch.cat((codes_RL.view(torch.uint8), scales_RB.view(torch.uint8)), dim=1)


def decoded(message: Tensor, length: int) -> Tensor:
    """Return the rows [R, L] that bytes encode, each of `length` elements."""
    rows = message.shape[0]
    scales_RB = message[:, length:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    codes_RL = message[:, :length].view(torch.int8).float()
    whole = math.ceil(length / _BLOCK) * _BLOCK
    blocks_RBn = torch.nn.functional.pad(codes_RL, (0, whole - length)).view(rows, -1, _BLOCK)
    return (blocks_RBn * scales_RB.unsqueeze(-1)).view(rows, -1)[:, :length]
