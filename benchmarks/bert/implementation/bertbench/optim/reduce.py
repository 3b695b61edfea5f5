"""How gradients become one: the data-parallel communication hook, and the clip that follows it.

DDP hands each bucket of gradients to the hook as soon as the backward pass has filled it, so communication
runs behind the rest of the backward pass. What is done to a bucket before its all-reduce (the paper's
bucket-wise clipping, compression) has its place in `sum_bucket`.
"""

from collections.abc import Iterable

import torch
from torch import distributed, nn
from torch._C._distributed_c10d import GradBucket


def sum_bucket(group: distributed.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum one bucket over the ranks. A sum, not DDP's mean: the loss is already divided by the global counts."""
    buffer = bucket.buffer()
    work = distributed.all_reduce(buffer, group=group, async_op=True)
    # the hook answers with its own buffer: torch's fake process group gives a future without a value
    return work.get_future().then(lambda _: buffer)


@torch.no_grad()
def clip_after(parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Scale the reduced gradient to global norm at most `max_norm`; returns the norm before, on the device."""
    return nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True)


@torch.no_grad()
def gradient_norm(parameters: Iterable[nn.Parameter]) -> torch.Tensor:
    """Global norm of the gradient, on the device."""
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True)
