"""Sum the gradients of a split model over ranks with the same part, and take their norm over all parts."""

from collections.abc import Sequence

import torch
from torch import distributed, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed.tensor import DTensor, Shard

from bertbench.optim.state import local
from bertbench.parallel.process_groups import ProcessGroups

_BUCKET_ELEMENTS = 25 * 2**20 // 4  # as DDP's buckets, 25 MiB


def sharded(parameter: torch.Tensor) -> bool:
    """Return whether a rank holds only a part of the tensor."""
    return isinstance(parameter, DTensor) and any(isinstance(place, Shard) for place in parameter.placements)


class Gradients:
    """The gradients of this rank's part of the model.

    `words` are the word embeddings on the first and the last stage: each of the two computes a part of their gradient.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], words: nn.Parameter | None, groups: ProcessGroups, fully_shard: bool
    ) -> None:
        self._parameters = parameters
        self._words = words if groups.layout.pipeline > 1 else None
        self._groups = groups
        self._reduced_behind = fully_shard  # by FSDP2, in the backward pass
        copies = distributed.get_world_size(groups.shards)
        shares = [1.0 if sharded(parameter) else 1 / copies for parameter in parameters]
        if self._words is not None and groups.place.pipeline > 0:  # the first stage counts them
            shares[next(i for i, parameter in enumerate(parameters) if parameter is words)] = 0.0
        self._shares = torch.tensor(shares, device=groups.world.device)
        self.buckets = [] if fully_shard else _buckets([local(parameter).numel() for parameter in parameters])
        """Places of the parameters whose gradients are reduced together."""

    @torch.no_grad()
    def reduce(self) -> None:
        """Sum every gradient over the ranks that have a part of it."""
        if self._words is not None:
            assert self._words.grad is not None, "every trained parameter takes part in every step"
            distributed.all_reduce(self._words.grad, group=self._groups.tied)
        if self._reduced_behind or self._groups.layout.data == 1:
            return
        gradients = self._local()
        for places in self.buckets:
            bucket = [gradients[place] for place in places]
            flat = _flatten_dense_tensors(bucket)
            distributed.all_reduce(flat, group=self._groups.data)
            torch._foreach_copy_(bucket, list(_unflatten_dense_tensors(flat, bucket)))

    @torch.no_grad()
    def norm(self) -> torch.Tensor:
        """Return the norm of the whole model's gradient, every element counted once, on the device."""
        squares = torch.stack(torch._foreach_norm(self._local())).square()
        total = squares @ self._shares
        distributed.all_reduce(total, group=self._groups.model)
        return total.sqrt()

    def _local(self) -> list[torch.Tensor]:
        gradients = []
        for parameter in self._parameters:
            assert parameter.grad is not None, "every trained parameter takes part in every step"
            gradients.append(local(parameter.grad))
        return gradients


def _buckets(sizes: Sequence[int]) -> list[list[int]]:
    buckets: list[list[int]] = [[]]
    filled = 0
    for place, size in enumerate(sizes):
        if buckets[-1] and filled + size > _BUCKET_ELEMENTS:
            buckets.append([])
            filled = 0
        buckets[-1].append(place)
        filled += size
    return buckets
