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
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import distributed
from torch._C._distributed_c10d import GradBucket

from bertbench.optim.bucket_sum import TensorFuture, done
from bertbench.optim.collectives import all_gather
from bertbench.optim.traffic import INT8_BLOCK, int8_slice, topk_elements

_LARGEST = 127


class _Begun(NamedTuple):
    number: int
    buffer: torch.Tensor
    received: torch.Tensor
    work: Any
    """Waits for the first exchange."""


class _Carried:
    """A tensor for each bucket that persists between steps, zero at first."""

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}

    def of(self, number: int, elements: int, like: torch.Tensor) -> torch.Tensor:
        found = self.tensors.get(number)
        if found is None or found.numel() != elements:  # DDP rebuilds its buckets once
            found = self.tensors[number] = like.new_zeros(elements)
        return found

    def zero(self) -> None:
        for tensor in self.tensors.values():
            tensor.zero_()


class Int8Sum:
    """Sum buckets as 8-bit integers, with one fp32 scale for each block of 512."""

    def __init__(self) -> None:
        self._rank, self._ranks = distributed.get_rank(), distributed.get_world_size()
        self._errors, self._slice_errors = _Carried(), _Carried()
        self._begun: list[_Begun] = []

    def __call__(self, bucket: GradBucket, factor: torch.Tensor | None) -> TensorFuture:
        """See `BucketSum`."""
        buffer, number = bucket.buffer(), bucket.index()
        length = int8_slice(buffer.numel(), self._ranks)
        whole = self._errors.of(number, self._ranks * length, buffer)
        _add(whole, buffer, factor)
        rows_RL = whole.view(self._ranks, length)
        message = encoded(rows_RL)
        rows_RL -= decoded(message, length)
        received = torch.empty_like(message)
        work = _all_to_all(received.view(-1), message.view(-1), async_op=True)
        self._begun.append(_Begun(number, buffer, received, work))
        return done(buffer)

    def finish(self) -> None:
        """See `BucketSum`."""
        begun, self._begun = self._begun, []
        gathered = []
        for number, _, received, work in begun:
            work.wait()
            length = int8_slice(self._errors.tensors[number].numel(), self._ranks)
            own = self._slice_errors.of(number, length, self._errors.tensors[number])
            own += decoded(received, length).sum(dim=0)
            message = encoded(own.view(1, -1))
            own -= decoded(message, length).reshape(-1)
            gathered.append((received, all_gather(received.view(-1), message.view(-1), async_op=True)))
        for (number, buffer, _, _), (received, work) in zip(begun, gathered, strict=True):
            work.wait()
            length = int8_slice(self._errors.tensors[number].numel(), self._ranks)
            buffer.copy_(decoded(received, length).reshape(-1)[: buffer.numel()])

    def reset(self) -> None:
        """Forget the errors; call it after a warm-up."""
        self._errors.zero()
        self._slice_errors.zero()

    def state(self) -> dict[str, torch.Tensor]:
        """Return this rank's errors: of its gradients, and of its slices of the sums."""
        return {
            f"{kind}.{self._rank}.{number}": tensor
            for kind, carried in (("error", self._errors), ("slice_error", self._slice_errors))
            for number, tensor in carried.tensors.items()
        }


class TopKSum:
    """Sum the largest `share` of each rank's elements; the rest waits in the error until it is large enough."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._rank, self._ranks = distributed.get_rank(), distributed.get_world_size()
        self._errors = _Carried()
        self._begun: list[_Begun] = []

    def __call__(self, bucket: GradBucket, factor: torch.Tensor | None) -> TensorFuture:
        """See `BucketSum`."""
        buffer, number = bucket.buffer(), bucket.index()
        error = self._errors.of(number, buffer.numel(), buffer)
        _add(error, buffer, factor)
        places = error.abs().topk(topk_elements(buffer.numel(), self._share), sorted=False).indices
        message = torch.stack((places.int(), error[places].view(torch.int32)))
        error[places] = 0
        received = message.new_empty(self._ranks, *message.shape)
        work = all_gather(received.view(-1), message.view(-1), async_op=True)
        self._begun.append(_Begun(number, buffer, received, work))
        return done(buffer)

    def finish(self) -> None:
        """See `BucketSum`."""
        begun, self._begun = self._begun, []
        for _, buffer, received, work in begun:
            work.wait()
            buffer.zero_()
            for places, values in received:  # rank after rank: every rank adds in the same order
                buffer.index_add_(0, places, values.view(buffer.dtype))

    def reset(self) -> None:
        """Forget the errors; call it after a warm-up."""
        self._errors.zero()

    def state(self) -> dict[str, torch.Tensor]:
        """Return this rank's errors."""
        return {f"error.{self._rank}.{number}": tensor for number, tensor in self._errors.tensors.items()}


def encoded(rows_RL: torch.Tensor) -> torch.Tensor:
    """Return rows as bytes [R, L + 4 B]: a signed byte an element, then an fp32 scale a block.

    A block's largest element becomes 127 or -127. A non-finite element makes its block's scale non-finite, and the
    block NaN.
    """
    rows, length = rows_RL.shape
    blocks_RBn = torch.nn.functional.pad(rows_RL, (0, -length % INT8_BLOCK)).view(rows, -1, INT8_BLOCK)
    scales_RB = blocks_RBn.abs().amax(dim=-1) / _LARGEST
    codes_RBn = (blocks_RBn / scales_RB.clamp_min(torch.finfo(scales_RB.dtype).tiny).unsqueeze(-1)).round_()
    codes_RL = codes_RBn.to(torch.int8).view(rows, -1)[:, :length]
    return torch.cat((codes_RL.view(torch.uint8), scales_RB.view(torch.uint8)), dim=1)


def decoded(message: torch.Tensor, length: int) -> torch.Tensor:
    """Return the rows [R, L] that bytes encode, each of `length` elements."""
    rows = message.shape[0]
    scales_RB = message[:, length:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    codes_RL = message[:, :length].view(torch.int8).float()
    whole = math.ceil(length / INT8_BLOCK) * INT8_BLOCK
    blocks_RBn = torch.nn.functional.pad(codes_RL, (0, whole - length)).view(rows, -1, INT8_BLOCK)
    return (blocks_RBn * scales_RB.unsqueeze(-1)).view(rows, -1)[:, :length]


def _add(error: torch.Tensor, buffer: torch.Tensor, factor: torch.Tensor | None) -> None:
    own = error[: buffer.numel()]
    own += buffer if factor is None else buffer * factor


_all_to_all: Callable[..., Any] = distributed.all_to_all_single
