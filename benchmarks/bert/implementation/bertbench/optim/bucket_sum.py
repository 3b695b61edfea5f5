"""What a sum of buckets over the ranks is to DDP's communication hook.

Every sum answers with a future of the bucket's own buffer (torch's fake process group gives futures without a value)
and leaves the sum in it. All of it is a sum, not DDP's mean: see clip.py.
"""

from typing import Protocol

import torch
from torch._C._distributed_c10d import GradBucket

TensorFuture = torch.futures.Future[torch.Tensor]


class Travelling(Protocol):
    """What the sum of whole elements needs of a bucket."""

    def index(self) -> int:
        """Return its number."""

    def buffer(self) -> torch.Tensor:
        """Return its content, flat."""


class BucketSum(Protocol):
    """Sums buckets over the ranks."""

    def __call__(self, bucket: GradBucket, factor: torch.Tensor | None) -> TensorFuture:
        """Start the sum of one bucket in place; this rank contributes `factor` times its content."""

    def finish(self) -> None:
        """Complete, in the buckets' order, what takes a second exchange; after the last bucket of a step."""

    def reset(self) -> None:
        """Forget what former steps left behind; after a warm-up."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return what the steps to come depend on, as it is in memory."""


def done(buffer: torch.Tensor) -> TensorFuture:
    """A future of what is there already."""
    future: TensorFuture = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
    future.set_result(buffer)
    return future
