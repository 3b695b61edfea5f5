"""Define the interface of bucket sums over the ranks, for DDP's communication hook.

Every sum returns a future of the bucket's own buffer (torch's fake process group gives futures without a value) and
leaves the result in it. It is a sum, not DDP's mean: see clip.py.
"""

from typing import Protocol

import torch
from torch._C._distributed_c10d import GradBucket

TensorFuture = torch.futures.Future[torch.Tensor]


class Travelling(Protocol):
    """The part of a bucket that the sum of whole elements uses."""

    def index(self) -> int:
        """Return its number."""

    def buffer(self) -> torch.Tensor:
        """Return its content, flat."""


class BucketSum(Protocol):
    """Sums buckets over the ranks."""

    def __call__(self, bucket: GradBucket, factor: torch.Tensor | None) -> TensorFuture:
        """Start the sum of one bucket in place; this rank contributes `factor` times its content."""

    def finish(self) -> None:
        """Complete sums that need a second exchange, in the buckets' order; call it after a step's last bucket."""

    def reset(self) -> None:
        """Forget the state of earlier steps; call it after a warm-up."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the tensors in memory on which later steps depend."""


def done(buffer: torch.Tensor) -> TensorFuture:
    """Return a completed future of the buffer."""
    future: TensorFuture = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
    future.set_result(buffer)
    return future
