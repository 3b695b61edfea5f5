"""Sum the gradients of a split model over ranks with the same part, and take their norm over all parts.

A bucket of gradients is sent as soon as the last backward pass of a step has filled it, overlapping the rest of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import distributed, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.tensor import DTensor, Shard

from bertbench.common.ranges import ALL_REDUCE, named
from bertbench.optim.clip import Clip
from bertbench.optim.countdown import BucketCountdown
from bertbench.optim.reducer import Reduced
from bertbench.optim.state import local
from bertbench.parallel.process_groups import ProcessGroups

_BUCKET_ELEMENTS = 25 * 2**20 // 4  # as DDP's buckets, 25 MiB


def sharded(parameter: torch.Tensor) -> bool:
    """Return whether a rank holds only a part of the tensor."""
    return isinstance(parameter, DTensor) and any(isinstance(place, Shard) for place in parameter.placements)


class SplitReducer:
    """Reduces the gradients of this rank's part of the model; see `optim.reducer.Reducer`.

    `words` are the word embeddings on the first and the last stage: each of the two computes a part of their gradient.
    `of_shares` are those whose gradient each tensor-parallel rank has for its share of the tokens only. A gradient is
    whole after `parts` backward passes.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        words: nn.Parameter | None,
        groups: ProcessGroups,
        clip: Clip,
        fully_shard: bool,
        parts: int,
        of_shares: Sequence[nn.Parameter] = (),
    ) -> None:
        self._parameters = parameters
        self._words = words if groups.layout.pipeline > 1 else None
        self._of_shares = of_shares
        self._groups, self._clip = groups, clip
        self._reduced_behind = fully_shard  # by FSDP2, in the backward pass
        copies = distributed.get_world_size(groups.shards)
        shares = [1.0 if sharded(parameter) else 1 / copies for parameter in parameters]
        if self._words is not None and groups.place.pipeline > 0:  # the first stage counts them
            shares[next(i for i, parameter in enumerate(parameters) if parameter is words)] = 0.0
        self._shares = torch.tensor(shares, device=groups.world.device)
        self.buckets = [] if fully_shard else _buckets([local(parameter).numel() for parameter in parameters])
        """Places of the parameters whose gradients are reduced together, in the order of reduction."""
        self._held = next(
            (
                number
                for number, places in enumerate(self.buckets)
                if self._words is not None and any(parameters[place] is self._words for place in places)
            ),
            None,
        )
        """The word embeddings' bucket, which waits for the end because another stage holds a part of them."""
        self._sums: list[_Sum] = []
        counts = [1 if number == self._held else parts * len(places) for number, places in enumerate(self.buckets)]
        self._countdown = BucketCountdown(counts, self._send)
        if groups.layout.data > 1:
            for number, places in enumerate(self.buckets):
                if number != self._held:
                    self._countdown.watch(number, [parameters[place] for place in places])

    def finish(self) -> Reduced:
        """See `optim.reducer.Reducer`."""
        with named(ALL_REDUCE):
            self._reduce()
            norm = self.norm()
        return Reduced(norm, *self._clip.reduced(norm))

    def drop(self) -> None:
        """See `optim.reducer.Reducer`."""
        for parameter in self._parameters:
            parameter.grad = None

    def state(self) -> dict[str, torch.Tensor]:
        """Return nothing: no state stays between steps."""
        return {}

    def reset(self) -> None:
        """Do nothing: no state stays between steps."""

    @torch.no_grad()
    def _reduce(self) -> None:
        """Sum every gradient over the ranks that have a part of it."""
        if self._words is not None:
            assert self._words.grad is not None, "every trained parameter takes part in every step"
            distributed.all_reduce(self._words.grad, group=self._groups.tied)
        if not self._reduced_behind and self._groups.layout.data > 1:
            self._end_reductions()
        if self._of_shares:
            gradients = _gradients(self._of_shares)
            # functional, as DTensor's collectives are, so that `Traffic` counts it with theirs
            flat = all_reduce(_flatten_dense_tensors(gradients), "sum", self._groups.tensor)
            torch._foreach_copy_(gradients, list(_unflatten_dense_tensors(flat, gradients)))

    def _end_reductions(self) -> None:
        if self._held is not None:  # its word embeddings are whole now
            self._countdown.arrive(self._held)
        self._countdown.end_step()
        for gradients, flat, work in self._sums:
            work.wait()
            torch._foreach_copy_(gradients, list(_unflatten_dense_tensors(flat, gradients)))
        self._sums = []

    @torch.no_grad()
    def norm(self) -> torch.Tensor:
        """Return the norm of the whole model's gradient, every element counted once, on the device."""
        squares = torch.stack(torch._foreach_norm(self._local())).square()
        total = squares @ self._shares
        distributed.all_reduce(total, group=self._groups.model)
        return total.sqrt()

    @torch.no_grad()
    def _send(self, number: int) -> None:
        gradients = self._local(self.buckets[number])
        flat = _flatten_dense_tensors(gradients)
        work = distributed.all_reduce(flat, group=self._groups.data, async_op=True)
        self._sums.append(_Sum(gradients, flat, work))

    def _local(self, places: Sequence[int] | None = None) -> list[torch.Tensor]:
        return _gradients(self._parameters if places is None else [self._parameters[place] for place in places])


class _Sum(NamedTuple):
    """A bucket whose sum has begun."""

    gradients: list[torch.Tensor]
    flat: torch.Tensor
    work: distributed.Work


def _gradients(parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    gradients = []
    for parameter in parameters:
        assert parameter.grad is not None, "every trained parameter takes part in every step"
        gradients.append(local(parameter.grad))
    return gradients


def _buckets(sizes: Sequence[int]) -> list[list[int]]:
    """Fill buckets from the last parameter on, about the order in which a backward pass gives gradients."""
    buckets: list[list[int]] = [[]]
    filled = 0
    for place, size in reversed(list(enumerate(sizes))):
        if buckets[-1] and filled + size > _BUCKET_ELEMENTS:
            buckets.append([])
            filled = 0
        buckets[-1].append(place)
        filled += size
    return buckets
