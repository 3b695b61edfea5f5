"""Sum only the largest elements of each bucket, which ranks send with their places; carry the others as errors.

An all-gather gives all ranks each rank's elements.
"""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from bertbench.distributed.collectives import all_gather
from bertbench.gradients.buckets import Bucket
from bertbench.gradients.exchange import Exchange
from bertbench.training.technique import Technique
from lab.techniques.error_feedback import ErrorFeedback, Started
from lab.techniques.rules import RULES

_PLACED_BYTES = 4 + 4  # an fp32 number and its position


class TopK(Technique):
    """Ranks send the largest elements of their gradients."""

    name = "topk"
    rules = RULES
    state_by_rank: ClassVar[bool] = True

    share: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Share of a bucket's elements that a rank sends. Lower it for slower links."""

    def gradient_sum(self, exchange: Exchange) -> "TopKSum":
        """Return the sum of the largest elements; see `Technique`."""
        del exchange
        return TopKSum(self.share)


class TopKSum(ErrorFeedback):
    """Sums the largest `share` of each rank's elements; others stay in the error until they are large enough."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def bytes_per_step(self, shapes: Sequence[Sequence[int]], bucket_elements: Sequence[int]) -> int:
        """Count each bucket's largest elements and their positions; see `GradientSum`."""
        del shapes
        return _PLACED_BYTES * sum(topk_elements(elements, self._share) for elements in bucket_elements)

    def begin(self, bucket: Bucket, factor: Tensor | None) -> None:
        """Send the largest elements to all ranks; see `GradientSum`."""
        elements = bucket.gradients.numel()
        error = self._with_gradient(bucket, elements, factor)
        places = error.abs().topk(topk_elements(elements, self._share), sorted=False).indices
        message = torch.stack((places.int(), error[places].view(torch.int32)))
        error[places] = 0
        received = message.new_empty(self._ranks, *message.shape)
        work = all_gather(received.view(-1), message.view(-1), async_op=True)
        self._started.append(Started(bucket, received, work))

    def finish(self) -> None:
        """Wait for all ranks' elements and add them up; see `GradientSum`."""
        for started in self._take_started():
            started.work.wait()
            gradients = started.bucket.gradients
            gradients.zero_()
            for places, values in started.received:  # in the order of ranks, which is the same on every rank
                gradients.index_add_(0, places, values.view(gradients.dtype))


def topk_elements(elements: int, share: float) -> int:
    """Return how many elements of a bucket top-k sends: at least one."""
    return max(1, math.ceil(share * elements))
