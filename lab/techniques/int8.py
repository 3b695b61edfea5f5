"""Sum gradients as 8-bit integers, with one fp32 scale for each block of 512 elements, and carry the rounding errors.

An all-to-all gives each rank its slice of all ranks' gradients; their sum, which is rounded again with its own error,
goes to all ranks.
Shapes: R ranks, L elements of a slice, B blocks of a slice.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, distributed

from bertbench.distributed.collectives import all_gather
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Exchange
from bertbench.training.technique import Technique
from lab.techniques.error_feedback import ErrorFeedback, Started
from lab.techniques.rules import RULES

_LARGEST = 127
_BLOCK = 512  # elements that share a scale
_SCALE_BYTES = 4  # fp32


class Int8(Technique):
    """Ranks send gradients in a quarter of the bytes."""

    name = "int8"
    rules = RULES
    state_by_rank: ClassVar[bool] = True

    def gradient_sum(self, exchange: Exchange) -> "Int8Sum":
        """Return the sum of 8-bit integers; see `Technique`."""
        del exchange
        return Int8Sum()


class Int8Sum(ErrorFeedback):
    """Sums buckets as 8-bit integers, with one fp32 scale for each block of 512 elements."""

    def bytes_per_step(self, shapes: Sequence[Sequence[int]], bucket_elements: Sequence[int]) -> int:
        """Count the bytes of each rank's slice; see `GradientSum`."""
        del shapes
        return sum(sent_bytes(elements, self._ranks) for elements in bucket_elements)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Send each rank its slice of this rank's gradient; see `GradientSum`."""
        length = int8_slice(bucket.gradients.numel(), self._ranks)
        rows_RL = self._with_gradient(bucket, self._ranks * length, factor).view(self._ranks, length)
        message = encoded(rows_RL)
        rows_RL -= decoded_rows(message, length)
        received = torch.empty_like(message)
        work = distributed.all_to_all_single(received.view(-1), message.view(-1), async_op=True)
        self._started.append(Started(bucket, received, work))

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


def int8_slice(elements: int, ranks: int) -> int:
    """Return the number of elements in each rank's slice of a bucket, which the rank sums for int8."""
    return -(-elements // ranks)


def sent_bytes(elements: int, ranks: int) -> int:
    """Return the bytes of a bucket: one for each element and four for each block, in each rank's slice."""
    length = int8_slice(elements, ranks)
    blocks = -(-length // _BLOCK)
    return ranks * (length + _SCALE_BYTES * blocks)


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
