"""Sum compressed gradients and carry the compression error into the next step: int8 in blocks, and top-k.

If g_t is a rank's gradient and e_t its error, the rank sends C(g_t + e_t) and keeps e_{t+1} = g_t + e_t - C(g_t + e_t)
(Seide et al. 2014; Karimireddy et al. 2019). An all-reduce can't add up compressed numbers, so other collectives
replace it:

    int8     an all-to-all gives each rank its slice of all ranks' gradients; their sum, which is compressed again with
             its own error, goes to all ranks
    top-k    an all-gather gives all ranks each rank's largest elements with their positions

The first exchange of a bucket overlaps the backward pass; `finish` does the rest in the order of the buckets.
Shapes: N elements of a bucket, R ranks, L elements of a slice, B blocks of a slice.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from bertbench.config.optimizer import Communication
from bertbench.distributed.collectives import all_gather
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Exchange
from bertbench.gradients.gradient_sum import GradientSum, SummedSizes

_LARGEST = 127
_BLOCK = 512  # elements that share a scale in int8
_SCALE_BYTES = 4  # fp32
_PLACED_BYTES = 4 + 4  # an fp32 number and its position


class _Started(NamedTuple):
    """A bucket whose first exchange has started."""

    bucket: Bucket
    received: Tensor
    """The data that has arrived when `work` is done."""
    work: Any


class ErrorFeedback(GradientSum):
    """A compressed sum that carries over what it left out, as tensors by kind and bucket, which are zero at first."""

    def __init__(self, options: Communication, exchange: Exchange) -> None:
        super().__init__(options, exchange)
        self._rank = distributed.get_rank()
        self._ranks = distributed.get_world_size()
        self._carried: dict[tuple[str, int], Tensor] = {}
        self._started: list[_Started] = []

    def _error(self, kind: str, bucket: Bucket, elements: int) -> Tensor:
        if (kind, bucket.number) not in self._carried:
            self._carried[kind, bucket.number] = bucket.gradients.new_zeros(elements)
        return self._carried[kind, bucket.number]

    def _with_gradient(self, bucket: Bucket, elements: int, factor: Tensor | None) -> Tensor:
        """Return the sum of a bucket's error and `factor` times its gradient, in at least as many elements."""
        error = self._error("error", bucket, elements)
        contribution = bucket.gradients if factor is None else bucket.gradients * factor
        error[: bucket.gradients.numel()].add_(contribution)
        return error

    def _take_started(self) -> list[_Started]:
        """Return the exchanges that were started since the last call."""
        started = self._started
        self._started = []
        return started

    def reset(self) -> None:
        """Forget the errors; see `GradientSum`."""
        for tensor in self._carried.values():
            tensor.zero_()

    def state(self) -> dict[str, Tensor]:
        """Return this rank's errors: those of its gradients, and for int8 those of its slices of the sums."""
        return {f"{kind}.{self._rank}.{number}": tensor for (kind, number), tensor in self._carried.items()}


class Int8Sum(ErrorFeedback):
    """Sums buckets as 8-bit integers, with one fp32 scale for each block of 512 elements."""

    @staticmethod
    def bytes_per_step(sizes: SummedSizes) -> int:
        """Count one byte for each element and one scale for each block, in each rank's slice; see `GradientSum`."""
        slice_bytes = 0
        for elements in sizes.bucket_elements:
            length = int8_slice(elements, sizes.ranks)
            blocks = -(-length // _BLOCK)
            slice_bytes += length + _SCALE_BYTES * blocks
        return sizes.ranks * slice_bytes

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Send each rank its slice of this rank's gradient; see `GradientSum`."""
        length = int8_slice(bucket.gradients.numel(), self._ranks)
        rows_RL = self._with_gradient(bucket, self._ranks * length, factor).view(self._ranks, length)
        message = encoded(rows_RL)
        rows_RL -= decoded_rows(message, length)
        received = torch.empty_like(message)
        work = distributed.all_to_all_single(received.view(-1), message.view(-1), async_op=True)
        self._started.append(_Started(bucket, received, work))

    def finish(self) -> None:
        """Sum this rank's slices, send the sums to all ranks, and wait for those of the others; see `GradientSum`."""
        all_started = self._take_started()
        gathers = []
        for started in all_started:
            started.work.wait()
            length = int8_slice(started.bucket.gradients.numel(), self._ranks)
            slice_sum_L = self._error("slice_error", started.bucket, length)
            slice_sum_L += decoded_rows(started.received, length).sum(dim=0)
            message = encoded(slice_sum_L.view(1, -1))
            slice_sum_L -= decoded_rows(message, length).reshape(-1)  # the rest, not in the message, is the next error
            gathers.append(all_gather(started.received.view(-1), message.view(-1), async_op=True))
        for started, gather in zip(all_started, gathers, strict=True):
            gather.wait()
            gradients = started.bucket.gradients
            elements = gradients.numel()
            sums_RL = decoded_rows(started.received, int8_slice(elements, self._ranks))
            gradients.copy_(sums_RL.reshape(-1)[:elements])


class TopKSum(ErrorFeedback):
    """Sums the largest `topk_share` of each rank's elements; others stay in the error until they are large enough."""

    @staticmethod
    def bytes_per_step(sizes: SummedSizes) -> int:
        """Count each bucket's largest elements and their positions; see `GradientSum`."""
        share = sizes.options.topk_share
        return _PLACED_BYTES * sum(topk_elements(elements, share) for elements in sizes.bucket_elements)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Send the largest elements to all ranks; see `GradientSum`."""
        elements = bucket.gradients.numel()
        error = self._with_gradient(bucket, elements, factor)
        places = error.abs().topk(topk_elements(elements, self._options.topk_share), sorted=False).indices
        message = torch.stack((places.int(), error[places].view(torch.int32)))
        error[places] = 0
        received = message.new_empty(self._ranks, *message.shape)
        work = all_gather(received.view(-1), message.view(-1), async_op=True)
        self._started.append(_Started(bucket, received, work))

    def finish(self) -> None:
        """Wait for all ranks' elements and add them up; see `GradientSum`."""
        for started in self._take_started():
            started.work.wait()
            gradients = started.bucket.gradients
            gradients.zero_()
            for places, values in started.received:  # in the order of ranks, which is the same on every rank
                gradients.index_add_(0, places, values.view(gradients.dtype))


def int8_slice(elements: int, ranks: int) -> int:
    """Return the number of elements in each rank's slice of a bucket, which the rank sums for int8."""
    return -(-elements // ranks)


def topk_elements(elements: int, share: float) -> int:
    """Return how many elements of a bucket top-k sends: at least one."""
    return max(1, math.ceil(share * elements))


def encoded(rows_RL: Tensor) -> Tensor:
    """Return rows as bytes [R, L + 4 B]: a signed byte for each element, then an fp32 scale for each block.

    The largest element of a block becomes 127 or -127. If an element isn't finite, neither is its block's scale, and
    the whole block becomes NaN.
    """
    rows, length = rows_RL.shape
    blocks_RBn = torch.nn.functional.pad(rows_RL, (0, -length % _BLOCK)).view(rows, -1, _BLOCK)
    scales_RB = blocks_RBn.abs().amax(dim=-1) / _LARGEST
    codes_RBn = (blocks_RBn / scales_RB.clamp_min(torch.finfo(scales_RB.dtype).tiny).unsqueeze(-1)).round_()
    codes_RL = codes_RBn.to(torch.int8).view(rows, -1)[:, :length]
    return torch.cat((codes_RL.view(torch.uint8), scales_RB.view(torch.uint8)), dim=1)


def decoded_rows(message: Tensor, length: int) -> Tensor:
    """Return the rows [R, L] that the bytes encode; each has `length` elements."""
    rows = message.shape[0]
    scales_RB = message[:, length:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    codes_RL = message[:, :length].view(torch.int8).float()
    blocks_RBn = torch.nn.functional.pad(codes_RL, (0, -length % _BLOCK)).view(rows, -1, _BLOCK)
    return (blocks_RBn * scales_RB.unsqueeze(-1)).view(rows, -1)[:, :length]
