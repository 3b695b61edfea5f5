"""Delay gradients: step t applies the sum of step t - s, whose communication had s whole steps to finish.

Every bucket has a ring of s + 1 buffers: the sum of step t starts in one while step t - s takes its sum from the next.
The delay is fixed, so the result depends on the seed, not on the link's speed. schedule.py corrects the rate for it.
"""

from dataclasses import dataclass, field

import torch
from torch._C._distributed_c10d import GradBucket

from bertbench.optim.bucket_sum import TensorFuture, done
from bertbench.optim.communication import PlainSum


@dataclass
class _Ring:
    buffers: list[torch.Tensor]
    """Buffers: step t uses index t modulo their number."""
    step: int = 0
    pending: dict[int, TensorFuture] = field(default_factory=dict)
    """Sums in progress, by index in `buffers`."""

    def wait(self, place: int) -> torch.Tensor:
        if future := self.pending.pop(place, None):
            future.wait()
        return self.buffers[place]


@dataclass(frozen=True)
class _Copy:
    """A bucket's content in progress, with a unique number, because the sum keeps state by number."""

    number: int
    content: torch.Tensor

    def index(self) -> int:
        return self.number

    def buffer(self) -> torch.Tensor:
        return self.content


class DelayedSum:
    """Start the sum of each bucket and return the sum of `delay_steps` steps ago in it, zeros at first."""

    def __init__(self, whole: PlainSum, delay_steps: int) -> None:
        self._sum, self._places = whole, delay_steps + 1
        self._rings: dict[int, _Ring] = {}

    def __call__(self, bucket: GradBucket, factor: torch.Tensor | None) -> TensorFuture:
        """See `BucketSum`."""
        buffer, ring = bucket.buffer(), self._rings.get(bucket.index())
        if ring is None or ring.buffers[0].numel() != buffer.numel():  # DDP rebuilds its buckets once
            ring = self._rings[bucket.index()] = _Ring([torch.zeros_like(buffer) for _ in range(self._places)])
        place = ring.step % self._places
        ring.buffers[place].copy_(buffer)
        copy = _Copy(bucket.index() * self._places + place, ring.buffers[place])
        ring.pending[place] = self._sum(copy, factor)
        ring.step += 1
        buffer.copy_(ring.wait(ring.step % self._places))
        return done(buffer)

    def finish(self) -> None:
        """Do nothing: later steps finish the sums."""

    def reset(self) -> None:
        """Wait for sums in progress and drop them; call it after a warm-up and before the process group ends."""
        for ring in self._rings.values():
            for place in range(self._places):
                ring.wait(place).zero_()
            ring.step = 0

    def state(self) -> dict[str, torch.Tensor]:
        """Return the sums not applied yet, by bucket and age in steps; the same on every rank."""
        return {
            f"delayed.{number}.{age}": ring.wait((ring.step - age) % self._places)
            for number, ring in self._rings.items()
            for age in range(1, self._places)
        }
